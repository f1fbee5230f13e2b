"""Papers of made-up trials: "What was the effect of X on Y, compared with Z?" wants the result, not the methods.

Every sentence is made of a trial's own treatments and outcomes: what was planned, measured and discussed names them as
often as what was found does.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.evaluation.case import Case, Need, Span, join, seeded

CASES = 60
OUTCOMES_OF_A_TRIAL, ARMS = 9, 3
DRUGS = (
    "levosartan", "cold compresses", "supervised walking", "vitamin D3", "nasal saline", "group counselling",
    "ketoprofen gel", "yoga", "low-dose aspirin", "music during surgery", "an electronic reminder", "probiotics",
    "oral zinc", "usual care", "placebo", "early mobilisation", "warm fluids", "dexamethasone", "a printed leaflet",
)  # fmt: skip
OUTCOMES = (
    "pain at 24 hours", "length of stay", "systolic blood pressure", "adherence", "sleep quality", "nausea",
    "wound infection", "walking distance", "quality of life", "serum ferritin", "relapse within a year", "anxiety",
    "time to first bowel movement", "readmission", "body weight", "fasting glucose", "caregiver burden",
)  # fmt: skip
PLANS = (
    "The primary aim was to assess the effect of {x} on {y} compared with {z}.",
    "We hypothesised that {x} would improve {y} more than {z} does.",
    "Differences in {y} between {x} and {z} were analysed with a mixed model.",
    "{y_} was measured at baseline and at follow-up in those given {x} or {z} by blinded assessors.",
    "Participants were randomised to {x} or {z} and {y} was recorded in a diary.",
    "Previous studies of {x} have reported conflicting effects on {y}.",
    "The effect of {x} on {y} has rarely been compared with that of {z}.",
    "A sample of {n} patients was needed to detect an effect of {x} on {y} with a power of 80%.",
)
TALK = (
    "Our findings on {y} should be read with care, since {x} was given by few centres.",
    "How {x} might act on {y} is not known.",
    "Future trials should compare {x} with {z} for {y} in older patients.",
    "The guidelines mention {x}, but say little of {y}.",
)
RESULTS = (
    "{y_} was significantly lower with {x} than with {z} (mean difference -{a}, 95% CI -{b} to -{c}; P = .0{d}).",
    "{y_} did not differ between {x} and {z} ({a} ± {c} vs. {b} ± {c}, p = 0.{n}).",
    "With {x}, {y} improved by {a} points, against {c} points with {z} (P<0.01).",
    "Of those given {x}, {n}% had a better {y}, and of those given {z} {d}%.",
    "Regarding {y}, no difference was seen between {x} and {z} (OR 1.0{d}, 95% CI 0.{n} to 1.{n}).",
    "{y_} rose from {c} to {a} with {x} and from {c} to {b} with {z}.",
    "There was a marked reduction in {y} in the {x} arm ({a} vs {b} in the {z} arm; p=0.00{d}).",
    "The {x} and {z} arms were alike in {y} at the end of follow-up ({a} and {b}, respectively).",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was asked of one outcome, and the sentence that reports it."""

    treatment: str
    outcome: str
    other: str
    result: str


def cases(suite: str, count: int = CASES) -> Iterator[Case]:
    """Half of them are held out: those of every other number."""
    for number in range(count):
        yield _case(suite, number)


def _case(suite: str, number: int) -> Case:
    rng = seeded(f"findings {number}")
    arms = rng.sample(DRUGS, ARMS)
    outcomes = rng.sample(OUTCOMES, OUTCOMES_OF_A_TRIAL)
    findings = [_finding(rng, rng.sample(arms, 2), outcome) for outcome in outcomes]
    context, documents = join(list(_paper(rng, findings)), "\n\n")
    asked = rng.choice(findings)
    start = context.index(asked.result)
    span: Span = (start, start + len(asked.result))
    query = f"What was the effect of {asked.treatment} on {asked.outcome}, compared with {asked.other}?"
    needs = (Need(asked.result, (span,)),)
    return Case(
        suite, f"{suite}-{number}", query, context, documents, evidence=(span,),
        is_held_out=number % 2 == 0, needs=needs,
    )  # fmt: skip


def _finding(rng: random.Random, arms: list[str], outcome: str) -> Finding:
    treatment, other = arms
    return Finding(treatment, outcome, other, _said(rng, rng.choice(RESULTS), treatment, outcome, other))


def _said(rng: random.Random, form: str, x: str, y: str, z: str) -> str:
    low, high = sorted((rng.randrange(11, 60), rng.randrange(61, 99)))
    text = form.format(
        x=x, y=y, z=z, y_=y[0].upper() + y[1:], a=low / 10, b=high / 10, c=rng.randrange(2, 10) / 10,
        d=rng.randrange(1, 10), n=rng.randrange(11, 60),
    )  # fmt: skip
    return text[0].upper() + text[1:]


def _paper(rng: random.Random, findings: list[Finding]) -> Iterator[str]:
    """Sections as paragraphs: plans in the first two, one result of each outcome in the third, talk in the last."""
    yield f"A randomised trial of {findings[0].treatment} and {findings[0].other}"
    for heading, forms in (("Background", PLANS[5:7] + TALK), ("Methods", PLANS)):
        yield heading
        for finding in rng.sample(findings, len(findings)):
            yield _paragraph(rng, finding, rng.sample(forms, 4))
    yield "Results"
    for finding in rng.sample(findings, len(findings)):
        yield f"{_flow(rng, finding)} {finding.result}"
    yield "Discussion"
    for finding in rng.sample(findings, len(findings)):
        yield _paragraph(rng, finding, TALK)


def _paragraph(rng: random.Random, of: Finding, forms: tuple[str, ...] | list[str]) -> str:
    return " ".join(_said(rng, form, of.treatment, of.outcome, of.other) for form in forms)


def _flow(rng: random.Random, of: Finding) -> str:
    count = rng.randrange(60, 400)
    return f"Data on {of.outcome} were there of {count} participants given {of.treatment} or {of.other}."
