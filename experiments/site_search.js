// Search for a site that is opened from a folder.  Browsers start no worker from a file, so a hidden frame runs its script:
// in the frame `postMessage` answers us, and what we post arrives there as an event.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const source = String(new URL(url, location.href)).replaceAll("&", "&amp;");
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.answer = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.frame.srcdoc =
        "<script>postMessage = (data) => frameElement.answer(data)</script>" + `<script src="${source}"></script>`;
      this.inside = new Promise((ready) =>
        this.frame.addEventListener("load", () => ready(this.frame.contentWindow)),
      );
      document.body.append(this.frame);
    }

    postMessage(data) {
      this.inside.then((frame) => frame.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
