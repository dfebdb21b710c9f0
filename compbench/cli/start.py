"""The entry point of the command line checks streams, signals and the working folder before any verb is imported.

A missing stream becomes /dev/null.  If something else is missing, the command ends with one line that says so and status 2.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys

SURROUNDINGS = {
    errno.EMFILE: "this process may open no more files; raise the limit with `ulimit -n 1024`.",
    errno.ENFILE: "this machine can open no more files; close some programs.",
    errno.ENOSPC: "the disk is full; nothing more can be written.",
    errno.EDQUOT: "your disk quota is used up; nothing more can be written.",
    errno.EFBIG: "a file reached the largest allowed size; raise the limit with `ulimit -f unlimited`.",
    errno.EIO: "reading or writing failed; the device or the terminal is gone.",
}
"""Errors of the system that are not bugs of compbench, each with what to do about it."""


def main() -> None:
    """Run the command line.  Ctrl-C and SIGTERM end it with one line and status 130, also while it starts."""
    sys.exit(_status())


def _status() -> int:
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        open_missing_streams()
        spell_what_the_terminal_cannot_show()
        os.getcwd()
        try:
            from compbench.cli.main import main as verbs
            from compbench.system.devices import WAITS

            os.environ.setdefault(WAITS, "PASSIVE")  # before a verb loads torch
            os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")  # as in runner/processes.py
            verbs(prog_name="compbench")
        finally:
            sys.stdout.flush()
            gc.freeze()  # a last garbage collection at exit would take a twelfth of the time of `board`
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return _say("stopped.", 130)
    except RuntimeError as error:  # Python 3.11 turns an interrupt while an import creates a class into this error
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return _say("stopped.", 130)
    except BrokenPipeError:  # the reader of our output closed its end of the pipe
        _discard(1)
        return 0
    except FileNotFoundError:
        if _is_deleted():
            return _say("the working folder was deleted; change to another with `cd`.", 2)
        raise
    except OSError as error:
        return _say_of_surroundings(error)
    return 0


def open_missing_streams() -> None:
    """Open /dev/null for every closed standard stream, so that no other file gets its descriptor and no write fails."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  as long as the process lives


def spell_what_the_terminal_cannot_show() -> None:
    """Write characters that the terminal's encoding lacks as escapes: \\u03bb for a lambda in ASCII.  Nothing is lost."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _say_of_surroundings(error: OSError) -> int:
    """Print one line for an error of the system; any other error is our bug and keeps its traceback."""
    what = SURROUNDINGS.get(error.errno or 0)
    if what is None:
        raise error
    if error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG) and _is_of_output(error):
        what = f"the standard output accepts no more data: {error.strerror}."
        _discard(1)
    return _say(what, 2)


def _is_of_output(error: OSError) -> bool:
    """Whether an error was raised while the command line printed, and not while a library wrote a file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", "")) if trace is not None else ""
    return module.partition(".")[0] in ("click", "rich") or module == __name__ or module.startswith("compbench.cli")


def _say(line: str, status: int) -> int:
    try:
        print(f"compbench: {line}", file=sys.stderr, flush=True)
    except OSError:
        _discard(2)
    return status


def _discard(descriptor: int) -> None:
    """Discard what is still buffered for a stream, so that the interpreter's flush at exit cannot fail."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)


def _is_deleted() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


if __name__ == "__main__":
    main()
