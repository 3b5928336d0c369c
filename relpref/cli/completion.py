"""``relpref completion``: what a shell needs to complete commands, options and files."""

import argparse

from relpref.cli.output import say
from relpref.cli.parser import words


def run(chosen: argparse.Namespace) -> None:
    """Print the script for a shell."""
    say(
        {
            "bash": _bash,
            "zsh": lambda: f"autoload -U +X bashcompinit && bashcompinit\n{_bash()}",
            "fish": _fish,
        }[chosen.shell]()
    )


def _bash() -> str:
    """A case for each command; where nothing fits, files are completed."""
    known = words()
    cases = [f'    "{path}") words="{" ".join(_words(path, known))}" ;;' for path in known]
    nested = {path.partition(" ")[0] for path in known if " " in path}
    first = " ".join(path for path in known if " " not in path)
    return f"""_relpref() {{
  local words path="${{COMP_WORDS[1]}}" current="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then COMPREPLY=($(compgen -W "{first} --help --version" -- "$current")); return; fi
  case "$path" in {"|".join(sorted(nested))}) [ "$COMP_CWORD" -gt 2 ] && path="$path ${{COMP_WORDS[2]}}" ;; esac
  case "$path" in
{chr(10).join(cases)}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _relpref relpref"""


def _words(path: str, known: dict[str, dict[str, str]]) -> list[str]:
    options = [option for option in known[path] if option.startswith("-")]
    below = [other.partition(" ")[2] for other in known if other.startswith(f"{path} ")]
    fixed = [
        word
        for value in known[path].values()
        if value.startswith("{")
        for word in value.strip("{}").split(",")
    ]
    return [*below, *options, "--help", *fixed]


def _fish() -> str:
    known = words()
    lines = []
    for path in known:
        name, _, action = path.partition(" ")
        there = f"__fish_seen_subcommand_from {name}" + (
            f"; and __fish_seen_subcommand_from {action}" if action else ""
        )
        at = (
            f"__fish_use_subcommand; and not __fish_seen_subcommand_from {name}"
            if not action
            else f"__fish_seen_subcommand_from {name}"
        )
        lines.append(f"complete -c relpref -n '{at}' -a {action or name}")
        for option, value in known[path].items():
            if option.startswith("-"):
                kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                needs = (
                    f" -x -a '{value.strip('{}').replace(',', ' ')}'"
                    if value.startswith("{")
                    else " -r"
                    if value
                    else ""
                )
                lines.append(f"complete -c relpref -n '{there}' {kind}{needs}")
    return "\n".join(lines)
