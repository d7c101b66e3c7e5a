#!/usr/bin/env python3
"""Plans the measurements of fabric_ab.sh and explains their results; fabric_ab.sh calls it.

  fabric_ab.py plan FOLDER NAME=VALUE ...   writes plan (alternate.sh) and facts.json
  fabric_ab.py show FOLDER       prints what the plan measures
  fabric_ab.py choose FOLDER     after the first part: writes confirm/plan with the variables that win, if some but not all do
  fabric_ab.py report FOLDER     prints the tables, writes the profile; ends with 1 if nothing was measured
"""
import json
import pathlib
import shlex
import statistics
import sys

from alternating import Attempts, compare, main, noise_of, outcome, plan_line, table
from run_record import fail
from slow_variants import is_harmless

WITHOUT, WITH, CHOSEN = "without", "with", "chosen"


def without(name):
    return f"but_{name}"


def environment_of(facts, kept):
    """Words of alternate.sh that set the kept variables of the profile and unset the others. Those whose values change nothing
    are set for each variant."""
    return [*(f"{name}={value}" if name in kept else f"-{name}" for name, value in facts["values"].items()), *harmless_words(facts)]


def harmless_words(facts):
    return [f"{name}={value}" for name, value in facts["harmless"].items()]


def lines_of(facts, name, kept):
    """A variant: nccl-bench for each collective."""
    for collective in facts["collectives"]:
        command = [f"{facts['bin']}/nccl-bench", collective, *shlex.split(facts["sizes"]), "--json", f"@HERE@/{collective}.json"]
        yield plan_line(name, facts["ranks"], environment_of(facts, kept), command)


def write_plan(folder, facts, variants):
    """`variants`: {name: variables that are set}."""
    folder.mkdir(exist_ok=True)
    (folder / "plan").write_text("".join(line for name, kept in variants.items() for line in lines_of(facts, name, kept)))


def variants_of(facts):
    names = list(facts["values"])
    single = {without(name): [one for one in names if one != name] for name in names} if len(names) > 1 else {}
    return {WITHOUT: [], WITH: names, **single}


def plan(folder, profile, values, collectives, sizes, bin, ranks, output):
    """`values`: lines NAME=VALUE."""
    given = dict(line.split("=", 1) for line in values.splitlines())
    harmless = {name: value for name, value in given.items() if is_harmless(name, value)}
    measured = {name: value for name, value in given.items() if name not in harmless}
    if not measured:
        fail(f"the profile has only values that change nothing ({' '.join(values.splitlines())}): give another --profile, or keep it "
             "as it is")
    facts = {"profile": profile, "values": measured, "harmless": harmless, "sizes": sizes, "collectives": collectives.split(","),
             "bin": bin, "ranks": int(ranks), "output": output}
    write_plan(folder, facts, variants_of(facts))
    (folder / "facts.json").write_text(json.dumps(facts, indent=1))


def facts_of(folder):
    return json.loads((folder / "facts.json").read_text())


def show(folder):
    facts = facts_of(folder)
    print(f"nccl-bench {', '.join(facts['collectives'])} {facts['sizes']} on {facts['ranks']} ranks:")
    for name, kept in variants_of(facts).items():
        print(f"  {name}: {' '.join(environment_of(facts, kept))}")
    if facts["harmless"]:
        print(f"  set for each, because it changes nothing: {' '.join(harmless_words(facts))}")


def bandwidth(path, collective):
    """The geometric mean of the bus bandwidth over the sizes, in GB/s; None if it is missing."""
    try:
        rows = json.loads((path / f"{collective}.json").read_text())["results"]
    except (FileNotFoundError, ValueError):
        return None
    known = [row["out_of_place"]["bus_bw"] for row in rows]
    return statistics.geometric_mean(known) if known and min(known) > 0 else None


class Measured:
    """The bandwidths of a folder's variants, and their changes."""

    def __init__(self, folder, facts, names):
        self.facts, self.names, self.attempts = facts, names, Attempts(folder)
        self.rounds = {name: [[mean for mean in map(self.mean, paths) if mean] for paths in self.attempts.of(name)]
                       for name in names}

    def mean(self, path):
        """Of a run, over its collectives."""
        known = [bandwidth(path, collective) for collective in self.facts["collectives"]]
        return statistics.geometric_mean(known) if all(known) else None

    def has_baseline(self):
        return any(self.rounds[WITHOUT])

    def changes(self, reference):
        """Each variant against this one, in per cent of its bandwidth; {} if the reference failed."""
        return compare(self.rounds, reference) if any(self.rounds[reference]) else {}

    def is_slower(self, name, reference):
        change = self.changes(reference).get(name)
        return bool(change and change.differs and change.percent < 0)

    def text(self):
        changes, rows = self.changes(WITHOUT), []
        for name in self.names:
            paths = [path for of_round in self.attempts.of(name) for path in of_round]
            cells = [[bandwidth(path, collective) for path in paths] for collective in self.facts["collectives"]]
            medians = [statistics.median(known) if known and all(known) else None for known in cells]
            rows.append([name, *(f"{median:.3g}" if median else "-" for median in medians),
                         *outcome(changes[name], name == WITHOUT, self.attempts.failure(name), False)])
        return table(["variant", *(f"{name} GB/s" for name in self.facts["collectives"]), "change %", "noise %",
                      "than without"], rows)


def worth(measured):
    """[(variable, percent that the bandwidth falls without it, noise, whether it wins)], from the first part."""
    changes, found = measured.changes(WITH), []
    for name in measured.facts["values"]:
        change = changes.get(without(name))
        if change is None or change.percent is None:
            found.append((name, None, None, False))
        else:
            found.append((name, -change.percent, change.noise, change.differs and change.percent < 0))
    return found


def worth_text(percent, noise, wins):
    if percent is None:
        return "not compared"
    result = "it wins" if wins else "it harms" if percent < -noise else "no difference"
    return f"the bandwidth {'falls' if percent > 0 else 'rises'} by {abs(percent):.1f} % without it (noise {noise:.1f} %): {result}"


def first_part(folder, facts):
    return Measured(folder, facts, list(variants_of(facts)))


def winners(measured):
    """The variables that win; all if only the whole profile wins; [] if nothing does. If nccl-bench fails with the whole profile,
    those of the fastest variant that wins."""
    changes = measured.changes(WITHOUT)
    gains = {name: change.percent for name, change in changes.items() if change.differs and change.percent > 0}
    kept = [name for name, _, _, wins in worth(measured) if wins]
    if kept:
        return kept
    best = WITH if any(measured.rounds[WITH]) else max(gains, key=gains.get, default=None)
    return variants_of(measured.facts)[best] if best in gains else []


def choose(folder):
    facts = facts_of(folder)
    measured = first_part(folder, facts)
    kept = winners(measured) if measured.has_baseline() else []
    if kept and len(kept) < len(facts["values"]):
        write_plan(folder / "confirm", facts, {WITHOUT: [], WITH: list(facts["values"]), CHOSEN: kept})


def write_profile(facts, kept, measured, final):
    """The variables with their worth as comments."""
    source = pathlib.Path(facts["profile"]).stem
    sizes = f"nccl-bench {', '.join(facts['collectives'])} {facts['sizes']} on {facts['ranks']} ranks"
    lines = [f"# Measured by fabric_ab.sh: what wins of the profile {source}, {final} ({sizes}).\n\n"]
    for name, percent, noise, wins in worth(measured):
        if name in kept:
            reason = f"Without it, the bandwidth is {percent:.1f} % lower (noise {noise:.1f} %)." if wins else \
                "It was not seen to win alone, but these variables win together."
            lines.append(f"# {reason}\n{name}={facts['values'][name]}\n")
    lines += [f"# Not measured: this value changes nothing.\n{word}\n" for word in harmless_words(facts)]
    output = pathlib.Path(facts["output"])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("".join(lines))


def report(folder):
    facts = facts_of(folder)
    measured = first_part(folder, facts)
    if not measured.has_baseline():
        print(f"fabric_ab: nothing was measured, because the variant `without` {measured.attempts.failure(WITHOUT)}. See "
              f"{folder}/round-1/{WITHOUT}/log", file=sys.stderr)
        return 1
    print(measured.text(), end="")
    for name, percent, noise, wins in worth(measured):
        print(f"{name}={facts['values'][name]}: {worth_text(percent, noise, wins)}")
    kept, change = confirmed(folder, measured)
    if kept and (change is None or change.percent is None):
        print("No profile is written: call fabric_ab.sh again with a longer --time.")
        return 0
    if not kept or not change.differs or change.percent < 0:
        noise = noise_of(measured.rounds, WITHOUT)
        print(f"No profile: nothing wins by more than noise{f' ({noise:.1f} %)' if noise else ''}. Leave these variables unset.")
        return 0
    final = f"{change.percent:+.1f} % of bandwidth (noise {change.noise:.1f} %)"
    write_profile(facts, kept, measured, final)
    settings, output = " ".join(f"{one}={facts['values'][one]}" for one in kept), pathlib.Path(facts["output"])
    print(f"Wins: {settings}: {final}. Written to {output}.\n"
          f"To use it: cp {output} {pathlib.Path(facts['profile']).parent}/, and ARGOSY_FABRIC_MORE={output.stem} in site.conf")
    return 0


def confirmed(folder, measured):
    """(the variables of the profile to write, their Change together or None if it is not known). Prints the second part, if
    there is one. If the whole profile is faster than the chosen variables, the answer is the whole profile."""
    kept, changes = winners(measured), measured.changes(WITHOUT)
    variants = variants_of(measured.facts)
    same = next((name for name in variants if kept == variants[name]), None)
    if not (folder / "confirm" / "plan").exists():
        if not same:
            print("The experiments ended before the chosen variables were measured together.")
        return kept, changes[same] if same else None
    second = Measured(folder / "confirm", measured.facts, [WITHOUT, WITH, CHOSEN])
    if not second.has_baseline():
        print("The chosen variables could not be measured together.")
        return kept, None
    print("\nThe chosen variables together:\n" + second.text(), end="")
    name = WITH if second.is_slower(CHOSEN, WITH) else CHOSEN
    return kept if name == CHOSEN else variants[WITH], second.changes(WITHOUT)[name]


if __name__ == "__main__":
    main({"plan": plan, "show": show, "choose": choose, "report": report})
