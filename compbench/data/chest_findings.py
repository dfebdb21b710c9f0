"""The 14 findings of NIH's chest radiographs, and how often they occur together.

`LABEL_SETS` counts the label sets of the public random sample of 5,606 of the 112,120 radiographs.  54 label sets have a share of
0.1 % or more; DCFM (section 6.3) finds equally many feasible sets in the whole data.
"""

from __future__ import annotations

FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
"""The findings in the order of the data's own list; Wang et al. 2017."""

FEASIBLE_SHARE = 0.001
"""A label set of at least this share of the data is feasible (DCFM, section 6.3)."""

LABEL_SETS: dict[int, str] = {
    3044: "-",
    503: "d",
    203: "c",
    192: "a",
    144: "f",
    114: "h",
    99: "e",
    72: "i",
    69: "cd",
    65: "m",
    57: "ad",
    55: "ac",
    50: "b",
    44: "df",
    42: "k",
    41: "j",
    38: "l",
    31: "acd",
    30: "bc",
    29: "de",
    21: "dj",
    20: "ch",
    19: "dh",
    18: "di",
    17: "ef",
    16: "eh ce",
    15: "hk ai",
    14: "cm g",
    12: "dm ci af",
    11: "aci cf",
    10: "bd cdj",
    9: "ei em ah",
    8: "cdi ck dg",
    7: "ek fh",
    6: "dk dl cdf fm bcd cj ach hm",
    5: "ae ag am al n cef cl chk",
    4: "im lm acdi bj adi cei abc cdm aj ace ab cdh dgj",
    3: "bk bi adm ak km cde efh gi acdk el gj ij fi bci",
    2: "cdfi acde dfg chm fg adl dfm adh efm adf ehk an aek acim cefm cfh dei ack cdfh",
    1: "dhkm bcj adem il dhi jl dkm bcg dgi acdf fl cem acdij acl hi acik efg abcdl chi abd bcl dfhi gk acef"
    " abcfl dfhk den cej dhm dik hil eln aegi aij aehi defh kl adehk ahn acn adgij acdgj deghj ahi adhk"
    " flm fhk ahk hlm dil adhi cehm adk bm bdl aef afh ckm afi acilm cdim cgij ej bdgj dlm en acdgi bej"
    " acj cdfl achk cdeh bcf acf dej dehk acem fk acdn cefl cefh dgjk bcehi cdei abce cefim adeim ehm cim"
    " acefhi abcdeim abi cdefi adgi del afhim cdef aklm defi acgj achm efgi defhm acfhik cfj defm bcdf"
    " abcdm gm dfj cfm dij cdk dim fj bgi acdj ik bcm cg ghk def cdg akl acm adfhk bceh bdfj acdh aei be"
    " bdi hkm acei cgi bck",
}
"""Count -> the label sets that occur this often; a letter (a to n) is a finding in the order of `FINDINGS`, "-" means none."""


def label_counts() -> dict[tuple[int, ...], int]:
    """How often each label set, a 0 or 1 for each finding, occurs in the sample."""
    counts = {}
    for count, codes in LABEL_SETS.items():
        for code in codes.split():
            present = {ord(letter) - ord("a") for letter in code if letter != "-"}
            counts[tuple(int(number in present) for number in range(len(FINDINGS)))] = count
    return counts


def feasible(counts: dict[tuple[int, ...], int]) -> list[tuple[int, ...]]:
    """Label sets of at least `FEASIBLE_SHARE` of all, sorted."""
    total = sum(counts.values())
    return sorted(labels for labels, count in counts.items() if count >= FEASIBLE_SHARE * total)


def words(labels: tuple[int, ...]) -> str:
    """A label set as the data's table writes it."""
    return "|".join(name for name, present in zip(FINDINGS, labels, strict=True) if present) or "No Finding"
