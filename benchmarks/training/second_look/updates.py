"""Tickets that report the state of several things over time, and ask for the latest state of one."""

import random
from collections.abc import Iterator

from benchmarks.evaluation.case import Case, Need, join, seeded, spans_of

COUNT = 300
THINGS = (
    "the refund", "the replacement pump", "the fix", "the export job", "the backup server", "order 4471",
    "the invoice", "the VPN access", "the delivery", "the migration", "the broken sensor", "the contract",
    "the database", "the payment", "the second lift", "the translation", "the permit", "the new badge",
)  # fmt: skip
STATES = (
    "is waiting for the supplier", "was sent back to the workshop", "is planned for {day}", "has been approved",
    "was refused by the bank", "is being tested", "has been delayed until {day}", "will reach you on {day}",
    "runs again since this morning", "was cancelled", "needs a signature first", "has been handed to the night shift",
    "is ready for collection", "failed again with code {code}", "was deployed to the test system",
)  # fmt: skip
CHATTER = (
    "Thank you for your patience.", "Please find the photo attached.", "I have added my colleague in copy.",
    "Let us know if anything else is unclear.", "We are looking into it.", "Best regards, the service desk",
    "Sorry for the delay, we had many calls this week.", "I am out of office until Monday.", "Any news?",
)  # fmt: skip
QUESTIONS = (
    "What is the current state of {thing}?", "Where does {thing} stand now?", "What is the latest on {thing}?",
    "Is {thing} still open?", "What happened to {thing} most recently?", "When can we expect {thing}?",
    "{thing}: what is the newest status?", "What do we have to tell the customer about {thing} today?",
)  # fmt: skip
PEOPLE = (
    "Jane Doe (agent)",
    "Mr. Okafor (customer)",
    "support-bot",
    "L. Brandt",
    "Priya N.",
    "Tomás",
    "second level",
)


def cases() -> Iterator[Case]:
    """`COUNT` tickets, each with its own things, people and style; none is held out."""
    for number in range(COUNT):
        yield _ticket(number, seeded(f"updates {number}"))


def _ticket(number: int, rng: random.Random) -> Case:
    things = rng.sample(THINGS, rng.randint(3, 6))
    wanted = things[0]
    style = rng.randrange(4)
    lines, newest = [f"Ticket #{rng.randint(1000, 99999)}", f"Subject: {wanted} and other matters", ""], ""
    day, at = rng.randint(1, 5), -1
    for _ in range(rng.randint(8, 24)):
        day += rng.randint(0, 2)
        lines.append(_head(style, day, rng))
        for thing in rng.sample(things, rng.randint(0, 2)):
            sentence = f"{thing.capitalize()} {_state(rng)}."
            lines.append(sentence)
            if thing == wanted:
                newest, at = sentence, len(lines) - 1
        lines += [*rng.sample(CHATTER, rng.randint(0, 2)), ""]
    context, spans = join(lines, "\n")
    question = rng.choice(QUESTIONS).format(thing=wanted)
    question = question[0].upper() + question[1:]
    needs = (Need(newest, (spans[at],)),) if newest else ()
    name, evidence = f"updates-{number}", spans_of(needs)
    return Case("updates", name, question, context, (), evidence=evidence, is_held_out=False, needs=needs)


def _state(rng: random.Random) -> str:
    return rng.choice(STATES).format(day=f"{rng.randint(1, 28)} May", code=rng.randint(100, 599))


def _head(style: int, day: int, rng: random.Random) -> str:
    who, clock = rng.choice(PEOPLE), f"{rng.randint(7, 19):02d}:{rng.randint(0, 59):02d}"
    date = f"2024-05-{day:02d}" if day < 29 else f"2024-06-{day - 28:02d}"
    return (
        f"{date} {clock} {who}:",
        f"[{date}] {who}",
        f"--- Comment by {who} on {date}",
        f"{who} wrote on {date}, {clock}:",
    )[style]
