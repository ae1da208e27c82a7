"""The phrases of the generator; none of them states anything that a document states."""

from __future__ import annotations

__all__ = ["FALSE_QUOTE_ENDINGS", "INVENTIONS", "OPENING_TEMPLATES", "REFUSALS", "SYNONYMS", "WANDERINGS"]

REFUSALS = (
    "I could not find anything about this in the documents.",
    "The documents available to me do not provide this information.",
    "I'm sorry, but I don't have enough information to answer this.",
    "The sources do not mention that, so I cannot answer the question.",
)
OPENING_TEMPLATES = ("{0}", "{0}", "{0}", "According to the documents, {1}", "The sources say that {1}")
SYNONYMS = (
    ("before departure", "ahead of departure"),
    ("at least", "no less than"),
    ("is forbidden", "is not allowed"),
    ("no more than", "at most"),
    ("free of charge", "at no cost"),
    ("per cent", "percent"),
    ("is needed", "is required"),
    ("such as", "for example"),
    ("approximately", "about"),
    ("however", "though"),
)
INVENTIONS = (
    "An independent panel looked into {0} in 1987 and counted 412 separate cases.",
    "Most complaints on this point are settled by a retired judge from Aberdeen within nine weeks.",
    "A loyalty scheme returns a tenth of the amount to members as vouchers every autumn.",
    "The underlying treaty was renegotiated in secret and has never been published.",
    "Visitors from overseas are exempt once they present a stamped blue certificate.",
    "Similar arrangements for {0} exist in Portugal and Finland, where they are far stricter.",
    "A pilot project with 3,500 volunteers showed that {0} doubled in popularity after the reform.",
    "The insurance company reimburses the difference through its Dublin branch.",
    "Experts expect {0} to be abolished altogether by the end of the decade.",
    "Its inventor, a watchmaker named Harriet Coyle, sold the patent for a symbolic sum.",
    "Weekend supervisors can grant exceptions by telephone on extension 7714.",
    "The museum next door keeps the original drawings in a locked cabinet.",
    "Pensioners with a silver badge are moved to the front of the queue.",
    "A leaked memorandum puts the yearly cost of {0} at eleven million crowns.",
)
FALSE_QUOTE_ENDINGS = (
    "unless the responsible manager has agreed otherwise in writing",
    "as confirmed by the annual review of the inspectors",
    "which was later extended to all other cases without exception",
    "and must be reported to the regional board on the same day",
    "although the committee recommended the opposite course",
    "subject to the usual conditions of the insurance policy",
)
WANDERINGS = (
    "Thank you very much for reaching out with this interesting question!",
    "Before I come to the point, may I ask whether you have had a pleasant day so far?",
    "It is always a pleasure to think about such matters together.",
    "People wonder about many things in life, and curiosity is a wonderful companion.",
    "As an assistant, my aim is to be thorough, friendly and helpful at every step.",
    "Let us take a moment to step back and look at the bigger picture.",
    "There are, as so often, several sides to consider.",
    "Every journey begins with a first step, and every answer begins with a good question.",
    "Would you not agree that patience is a virtue?",
    "Let me gather my thoughts and go through them one after the other.",
)
