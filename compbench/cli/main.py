"""The command line: the group of verbs.  Everything heavy is imported inside the verb that needs it."""

from __future__ import annotations

import click

from compbench import __version__
from compbench.cli import (
    board,
    check,
    compare,
    completion,
    data,
    diagnose,
    doctor,
    gate,
    info,
    new,
    profile,
    run,
    score,
    show,
    store,
    submit,
    sweep,
    sweeps,
    tune,
)
from compbench.cli import list as listing
from compbench.system.errors import CompbenchError


class Verbs(click.Group):
    """Shows a `CompbenchError` as one line and exits with 2; anything else is our bug and keeps its traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except CompbenchError as error:
            click.echo(f"compbench: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("compbench: stopped.", err=True)
            ctx.exit(130)
        except BrokenPipeError:  # whoever read our output has had enough of it
            ctx.exit(0)


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="compbench")
def main() -> None:
    """Compare methods for compositional generation under one protocol.

    \b
    compbench list                                             what there is
    compbench info shapes3d-heavy                              what a task asks, and whether it can be learnt
    compbench run --method factored --task shapes3d-heavy      fit, sample, score, record (minutes on a CPU)
    compbench sweep --method factored,mono --task 'shapes3d-*' --seed 0-2
    compbench board                                            rebuild the leaderboard from the records

    Runs, caches and downloaded data live in COMPBENCH_HOME (default: the user's data folder).
    """


for verb in (
    run.run,
    sweep.sweep,
    tune.tune,
    listing.list_,
    info.info,
    listing.plugins,
    data.data,
    board.board,
    show.show,
    compare.compare,
    diagnose.diagnose,
    doctor.doctor,
    check.check,
    completion.completion,
    gate.gate,
    profile.profile,
    score.score,
    score.rescore,
    new.new,
    submit.submit,
    submit.reproduce,
    store.verify,
    store.export,
):
    main.add_command(verb)
for verb in (sweeps.status, sweeps.cancel):
    sweep.sweep.add_command(verb)


if __name__ == "__main__":
    main()
