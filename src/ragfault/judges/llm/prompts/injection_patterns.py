"""Injection patterns: phrases in a dozen languages that try to influence a judge.

All patterns are for texts in small letters, Latin ones without accents (see `ragfault.judges.llm.prompts.injections`). Each begins
with a word of its own, and every repeat in it is bounded: the time grows with the length of a text and no faster.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WORD_GAP = r"(?:[^\w.!?]{1,5}\w{1,24}){0,5}[^\w.!?]{1,5}"
"""Up to five words between."""
SENTENCE_GAP = r"[^.!?\n]{0,80}?"
"""Anything within the sentence."""
CHARACTER_GAP = r"[^。！？\n]{0,14}?"
"""The same where words have no spaces between."""

JUDGE_NOUN = (
    r"(?:(?:the |this |any |all |our )?(?:ai|llm|gpt|automat\w{2,3}|language[ -]model|model)[ -]?(?:based )?"
    r"(?:judges?|evaluators?|graders?|raters?|reviewers?|assistants?|systems?|models?)"
    r"|(?:the |this |any |all )?(?:evaluators?|graders?|raters?|annotators?|assistant|language models?"
    r"|llms?|chatbots?)"
    r"|the (?:judge|model|ai|bot))"
)
TARGET_NOUN = (
    r"(?:(?:this|these|the|that|every|each|all|any|my|its?|following|above|of|chunk c?\d+)\b[ ,]{0,2}){1,3}"
    r"(?:chunks?|passages?|contexts?|answers?|responses?|claims?|statements?|citations?|excerpts?"
    r"|snippets?|outputs?)"
)
FULL_SCORE = (
    r"(?:1\.0+|100 ?(?:%|percent|points)|10 ?/ ?10|10 out of 10|5 ?/ ?5|(?:the )?(?:highest|maximum|max"
    r"|perfect|top|full|best)"
    r"(?: possible)?(?: (?:score|grade|rating|marks?|relevance|value|points))?|fully |highly |completely "
    r"|\W?supported"
    r"|\W?relevant|\W?correct\b|\W?grounded|\W?high\b|\W?true\b|faithful)"
)

OVERRIDE_PATTERNS = {
    "en": r"\b(?:ignore|disregard|forget|override|bypass|do not follow|don.t follow|stop following"
    r"|discard|set aside"
    r"|pay no attention to|abandon|nullify)\b"
    rf"{WORD_GAP}(?:(?:previous|prior|above|earlier|preceding|foregoing|existing|initial|original|system|your"
    rf"|all|any|these)"
    r"\b[\s,]{0,5}(?:\w{1,14}[\s,]{1,5}){0,3})"
    r"(?:instructions?|prompts?|directions|directives?|guidelines|guidance|rubrics?|system messages?"
    r"|constraints|commands"
    r"|programming|criteria|grading|training)\b",
    "en rules": r"\b(?:ignore|disregard|forget)\b[^\w.!?\n]{1,3}(?:all |any )?(?:of )?(?:the |your )?"
    r"(?:previous|prior|above|earlier|preceding) (?:rules|orders|text|context|messages?|content"
    r"|conversation|tasks?)\b",
    "en above": r"\b(?:ignore|disregard|forget) (?:everything|anything|all) (?:that (?:was|is|came|you)"
    r"|(?:written |said |stated )?above"
    r"|before this|you (?:were|have been) told|else (?:you|in the prompt))",
    "de": rf"\b(?:ignorier\w{{1,4}}|missacht\w{{1,4}}|vergiss|vergesst|vergessen sie|befolge\w? nicht){WORD_GAP}"
    r"(?:anweisung|instruktion|vorgabe|befehl|aufforderung|systemnachricht|prompt)\w{0,3}",
    "fr": r"\b(?:ignore[rz]?|oublie[rz]?|ne tiens pas|ne tenez pas|ne suis pas|ne suivez pas|neglige[rz]?"
    rf"|fais abstraction|faites abstraction){WORD_GAP}"
    r"(?:instructions?|consignes?|directives?|invites?)\b",
    "es": r"\b(?:ignora[dr]?|ignore|olvid[ae]|olvidad|descart[ae]|haz caso omiso|haga caso omiso|no sigas"
    rf"|no siga){WORD_GAP}"
    r"(?:instruccion(?:es)?|indicaciones|ordenes|directrices|directivas)\b",
    "it": rf"\b(?:ignor[ai]\w{0, 2}|dimentic\w{1, 3}|trascur[ai]|non seguire){WORD_GAP}"
    r"(?:istruzion[ei]|indicazion[ei]|direttiv[ae]|comandi)\b",
    "pt": rf"\b(?:ignor[ae]r?|esqueca|esquece|desconsider[ae]|descart[ae]){WORD_GAP}"
    r"(?:instruc(?:ao|oes)|orientacoes|diretrizes|comandos|ordens)\b",
    "nl": rf"\b(?:negeer|vergeet|volg niet){WORD_GAP}(?:instructies?|aanwijzing(?:en)?|opdracht(?:en)?"
    rf"|richtlijn(?:en)?)\b",
    "pl": rf"\b(?:zignoruj\w{{0,3}}|ignoruj\w{{0,3}}|pomin\w{{0,3}}|zapomnij\w{{0,3}}){WORD_GAP}"
    r"(?:instrukcj|polece|wytyczn|rozkaz)\w{1,4}",
    "ru": rf"\b(?:игнорируй\w{{0,2}}|проигнорируй\w{{0,2}}|забудь\w{{0,2}}|не следуй\w{{0,2}}"
    rf"|отбрось\w{{0,2}}){WORD_GAP}"
    r"(?:инструкци|указани|команд|приказ|предписани)\w{1,4}",
    "uk": rf"\b(?:ігноруй\w{{0,2}}|проігноруй\w{{0,2}}|забудь\w{{0,2}}){WORD_GAP}(?:інструкці|вказівк|команд"
    rf"|наказ)\w{{0,4}}",
    "tr": r"\b(?:onceki|yukaridaki|tum) (?:\w{1,14} ){0,2}(?:talimat|komut|yonerge)\w{0,8} (?:\w{1,14} ){0,2}"
    r"(?:yok say|gormezden|unut|dikkate alma)",
    "zh": rf"(?:忽略|无视|無視|忽视|忘记|忘記|忘掉|不要理会|不要遵守|别管){CHARACTER_GAP}(?:指令|指示|说明|說明"
    rf"|提示|规则|規則|要求|命令)",
    "ja": rf"(?:指示|命令|指令|プロンプト|ルール|説明){CHARACTER_GAP}(?:無視し|無視せ|忘れて|従わない)",
    "ko": rf"(?:지시|명령|지침|프롬프트){CHARACTER_GAP}(?:무시|잊어|따르지)",
    "ar": r"(?:تجاهل|انس|لا تتبع)\w{0,3} (?:\w{1,14} ){0,3}(?:التعليمات|الأوامر|الاوامر|التوجيهات)",
    "en rubric": r"\b(?:ignore|disregard|forget|bypass|override) (?:the|this|that|any) (?:rubric|grading"
    r"|scoring|system prompt|evaluation)\b",
}
"""Forget what you were told."""

SCORE_PATTERNS = {
    "en": rf"\b(?:score|rate|grade|mark|rank|label|classify|judge|treat|evaluate|assess|deem"
    rf"|consider) {TARGET_NOUN}{SENTENCE_GAP}"
    rf"(?:\bas\b|\bat\b|\bwith\b|\bto be\b|:|=|,) {{0,2}}(?:a |an |being |only )?{FULL_SCORE}",
    "en this": r"\b(?:score|rate|grade|mark|label|classify) (?:this|it|me|everything|all of (?:it|them|this))"
    r" (?:as |at |with |a |an )?(?:a )?(?:1\.0\b|\W?supported\b|\W?relevant\b|highly relevant"
    r"|fully (?:supported|relevant)"
    r"|100 ?%|the (?:highest|maximum) (?:score|grade|rating|relevance)|full marks)",
    "en give": r"\b(?:give|assign|award|grant|return|output|report|set|respond with|reply with)\b"
    + SENTENCE_GAP
    + r"\b"
    r"(?:(?:relevance|support|score|grade|rating|verdict|groundedness|faithfulness)(?: (?:score|grade"
    r"|level|value))?"
    r"(?: (?:of|to|as|is|=)|:| =)? {0,2}\W?(?:1(?:\.0+)?\b(?![.,]?\d)|100 ?%|high\b|supported|maximum"
    r"|the maximum|10/10)"
    r"|(?:the )?(?:highest|maximum|max|perfect|full|top)(?: possible)? (?:score|grade|rating|relevance|marks)"
    rf"{SENTENCE_GAP}(?:chunk|passage|answer|response|claim|context|this text|this document)\w?)",
    "en must": r"\b(?:relevance|support|score|grade|verdict)(?: (?:score|level))? (?:must|should|has to"
    r"|is to|shall) "
    r"(?:always )?be (?:set |scored |rated |graded )?(?:to |at |as )?\W?(?:1(?:\.0)?\b|high\b|supported"
    r"|maximum|the max)",
    "en all": r"\b(?:all|every|each|any)(?: of the)?(?: other)? (?:claims?|chunks?|passages?|statements?"
    r"|citations?|answers?)"
    r"(?: (?:of|in|from|that)[^.!?\n]{0,40}?)? (?:are|is|must be|should be|as) (?:to be )?(?:considered "
    r"|treated |marked |rated |"
    r"fully |scored |judged |graded |labell?ed )(?:as )?\W?(?:supported|relevant|irrelevant|unsupported"
    r"|correct|grounded|high|1\.0)",
    "de": rf"\b(?:bewerte\w?|benote\w?|vergib|vergeben sie|gib|geben sie|stufe){WORD_GAP}(?:1[.,]0\b"
    rf"|bestnote|hochst\w{{1,3}} (?:punkt|note|bewert|"
    r"wert|relevanz)\w{0,8}|voll\w{1,2} punkt\w{0,4}|als (?:belegt|relevant|gestutzt|korrekt)\b)",
    "fr": rf"\b(?:note[rz]|considere[rz]?|evalue[rz]?|attribue[rz]?|donne[rz]?){WORD_GAP}(?:1[.,]0\b|note maximale"
    rf"|score maximal|meilleure note"
    r"|comme (?:pertinente?|etayee?s?|correcte?s?)\b)",
    "es": rf"\b(?:califica|califique|puntua|puntue|asigna|asigne|otorga|otorgue|dale|marca|evalua"
    rf"|evalue){WORD_GAP}(?:1[.,]0\b"
    r"|puntuacion (?:maxima|perfecta)|maxima (?:puntuacion|calificacion|nota)|como (?:relevante"
    r"|respaldad[oa])s?\b)",
    "it": rf"\b(?:valuta|valutate|assegna|assegnate|dai|date|segna){WORD_GAP}(?:1[.,]0\b|punteggio (?:massimo"
    rf"|pieno)|massimo punteggio"
    r"|voto massimo|come (?:rilevante|supportat[oa]|pertinente)\b)",
    "pt": rf"\b(?:avalie|atribua|de|pontue|marque|classifique){WORD_GAP}(?:pontuacao (?:maxima|perfeita)"
    rf"|nota maxima"
    r"|maxima (?:pontuacao|nota)|nota 1[.,]0\b|como (?:relevante|suportad[oa]|apoiad[oa])\b)",
    "nl": rf"\b(?:beoordeel|geef|markeer|waardeer){WORD_GAP}(?:1[.,]0\b|hoogste (?:score|cijfer|waardering)"
    rf"|maximale score"
    r"|als (?:relevant|onderbouwd|ondersteund)\b)",
    "pl": rf"\b(?:ocen|ocencie|przyznaj|nadaj|daj|oznacz){WORD_GAP}(?:1[.,]0\b|(?:maksymaln"
    rf"|najwyzsz)\w{{1,3}} (?:ocen|punkt|wynik)\w{{0,4}}"
    r"|jako (?:istotn|potwierdzon|trafn)\w{1,3})",
    "ru": rf"\b(?:оцени\w{{0,3}}|поставь\w{{0,2}}|присвой\w{{0,2}}|отметь\w{{0,2}}"
    rf"|считай\w{{0,2}}){WORD_GAP}(?:1[.,]0\b"
    r"|(?:максимальн|высш|наивысш)\w{1,3} (?:балл|оценк|рейтинг|релевантност)\w{0,4}|релевантн\w{1,3}"
    r"|подтвержд\w{1,6})",
    "zh": rf"(?:评分|打分|评为|標記為|标记为|标为|给予|给出|给这|給予){CHARACTER_GAP}(?:1\.0|满分|滿分|最高分"
    rf"|高度相关|完全支持|得到支持|相关|相關)",
    "ja": rf"(?:評価|スコア|採点|関連性|得点){CHARACTER_GAP}(?:1\.0|満点|最高点|最高評価|最高のスコア)",
    "en strong": rf"\b(?:score|rate|grade|mark|rank"
    rf"|label) {TARGET_NOUN}(?:[^\w.!?\n]{{1,3}}\w{{1,14}}){{0,2}}[^\w.!?\n]{{1,3}}"
    r"(?:1\.0\b|10 ?/ ?10|100 ?%|first\b|highest|perfect|top\b|highly\b)",
    "en most": r"\b(?:maximum|maximal|highest|top|perfect|full|best)(?: possible)? (?:relevance|relevancy"
    r"|faithfulness|groundedness)\b",
    "en rated": r"\b(?:is|be|are|gets?|being|get) (?:rated|graded|scored|ranked|judged|marked"
    r"|labell?ed) (?:as )?(?:perfect\b|1\.0\b|fully supported"
    r"|highly relevant|supported\b|the highest\b|relevant\b)",
    "en who": r"\b(?:evaluators?|graders?|raters?|person grading|one grading|(?:whoever|anyone|those"
    r"|people) (?:who )?(?:grad|judg|scor|evaluat)\w{1,4})"
    r"(?: \w{1,12}){0,3} (?:must|should|shall|has to|have to|needs? to) ",
    "es if": r"\bcomo si (?:las|tus|los) (?:\w{1,14} ){0,2}(?:instrucciones|reglas|indicaciones|ordenes)\b",
    "en set": r"\bset (?:p|(?:all |every |each |the |its? )?(?:\w{1,12} )?(?:relevance|groundedness"
    r"|verdict|support)(?: \w{1,8})?) to\b",
}
"""Give this the best of marks."""

ADDRESS_PATTERNS = {
    "to": rf"\b(?:attention|note|notice|message|instructions?|memo|reminder|hint)\W{{0,2}}"
    rf"(?: ?(?:to|for) |: ?|, ?){JUDGE_NOUN}\b",
    "dear": r"\b(?:dear|hello|hey|hi|attention|listen|please),? (?:the )?(?:evaluator|grader|rater"
    r"|ai judge|llm judge|llm|"
    r"language model|ai model|ai assistant|ai evaluator|ai grader|chatbot|gpt(?:-\d)?)\b",
    "if": r"\bif you are (?:an? |the )?(?:ai|llm|language model|large language model|evaluator|grader"
    r"|automated|gpt|judge)\b",
    "new": r"(?:^|[\n.!?>*#\]\[])[ \t]{0,8}(?:new|updated|revised|hidden|secret|real|actual|true|final)"
    r" (?:system )?(?:instructions?|task|prompt|directives?|orders)(?: for you)?[ \t]{0,2}:",
    "over": r"\b(?:evaluation|grading|judging|assessment|scoring) (?:task |phase |part )?"
    r"(?:is|has been) (?:now )?(?:over|cancell?ed|complete[d]?|finished|suspended|disabled|aborted)\b"
    + SENTENCE_GAP
    + r"\b(?:you|now|instead|output|reply|respond|score)\b",
    "skip": r"\b(?:do not|don.t|no need to|skip|stop|refrain from|never) (?:the )?(?:evaluat\w{1,5}"
    r"|judg\w{1,4}|grad(?:e|ing)|scor(?:e|ing)"
    r"|fact[- ]?check\w{0,3}|verif\w{1,6}) " + TARGET_NOUN,
    "reveal": r"\b(?:reveal|print|repeat|output|leak|disclose|display|show me|show|tell me|give me"
    r"|translate) "
    r"(?:(?:me|us|verbatim|out|all|of|the|your|full|entire|complete|hidden|secret) ){0,4}"
    r"(?:(?:system|initial|original|hidden) (?:prompt|instructions?|message)|your (?:instructions|prompt"
    r"|rules|api keys?)"
    r"|environment variables)\b",
    "reply": r"\b(?:respond|reply|answer|output|return|say)\b (?:only |just |exactly |simply |always "
    r"|nothing but |with |in |the |a |an |"
    r"following |valid |this |that ){1,5}(?:score (?:of )?1|1\.0\b|[\"'`]?supported\b|relevance"
    r"|highly relevant"
    r"|[\"'`]?high\b[\"'`]|\{ ?[\"'])",
    "as": r"\bas (?:an? |the )?(?:evaluator|grader|rater|llm|language model|ai judge"
    r"|ai evaluator),? (?:you|i want|we want|please|it is your)\b",
    "line": r"(?:^|[\n<!>*(\[])[ \t!*-]{0,6}(?:ai|llm|gpt|chatgpt|claude|gemini|copilot|assistant"
    r"|language model|model)s?"
    r"(?: (?:instructions?|note|notes|only|readers?|agents?|crawlers?|evaluators?))?[ \t]{0,2}[:,-][ \t]{0,2}"
    r"(?:please|do not|rank|rate|score|grade|treat|ignore|describe|say|mark|always|never|you (?:must"
    r"|should|are|will))\b",
    "goal": r"\byour (?:true|real|actual|secret|hidden) (?:goals?|tasks?|objectives?|purpose|mission"
    r"|instructions?|role|job) (?:is|are)\b",
    "next": r"\byour (?:next|new|only|sole|final) (?:goal|task|objective|instruction|order"
    r"|job) is to (?:say|output|reply|respond|answer|score"
    r"|rate|grade|mark|print|return|approve|repeat)\b",
    "regardless": r"\b(?:regardless of|no matter|whatever)\b[^.!?\n]{0,24}\b(?:told|instructions?|prompt"
    r"|guidelines|rubric|criteria)\b[^.!?\n]{0,60}"
    r"\b(?:score|relevan\w{1,3}|supported|grade|rating|verdict|you must|you should)\b",
    "say": r"\b(?:say|output|print|return|respond|reply"
    r"|answer)\b[^.!?\n]{0,24}[\"'`“‘](?:fully )?(?:supported|relevant|highly relevant|1\.0)[\"'`”’]",
    "reader": r"\bto (?:the|any|every|all|whichever) (?:language models?|llms?|ai models?|ai|evaluators?"
    r"|graders?) (?:reading|that|who|which|grading"
    r"|judging|processing)\b",
    "operator": r"\byour (?:operator|developer|creator|maker)s? (?:wants?|says?|asks?|told|requires?"
    r"|orders?|has|have)\b|\bauthori[sz]e you to"
    r" (?:skip|ignore|bypass|score|grade|disregard)\b",
    "above": r"\b(?:repeat|print|output|reveal|translate) (?:all |the |everything "
    r"|every )?(?:of )?(?:the )?(?:texts?|words?|lines?|content|instructions)?"
    r" ?(?:above|before this)\b[^.!?\n]{0,30}\b(?:verbatim|word for word|exactly|starting|beginning)\b",
}
"""You who judge this."""

ROLE_PATTERNS = {
    "you are": r"\byou(?: a|['’]| wi)(?:re|ll be|ll)? (?:now |from now on |no longer |really |actually "
    r"|hereby )?(?:be |act as )?"
    r"(?:an? |the |my |bound by )?(?:\w{1,14} ){0,2}(?:ai (?:judge|evaluator|assistant|grader|model"
    r"|without)|llm|language model|chatbot"
    r"|unrestricted|lenient (?:judge|grader|evaluator)|generous (?:judge|grader|evaluator)|jailbroken"
    r"|evaluator|grader"
    r"|dan\b(?! \w+ing)|in (?:developer|debug|maintenance|god|admin|jailbreak|dan|test) mode)",
    "pretend": r"\b(?:pretend|imagine|assume|suppose|role-?play)(?: that)? (?:to be|you (?:are|were|have)"
    r"|as) (?:an? |the |my |in )?"
    r"(?:\w{1,14} ){0,3}(?:ai\b|judge|evaluator|grader|assistant|chatbot|language model|llm|no (?:rules"
    r"|restrictions|guidelines|"
    r"instructions)|(?:already )?(?:scored|graded|verified|approved)|developer mode|without (?:rules"
    r"|restrictions))",
    "act as": r"\bact as (?:if (?:you|this|the) [^.!?\n]{0,60}?(?:relevant|supported|instructions|judge"
    r"|verified|correct|ai)\b|(?:an?|the|my) "
    r"(?:\w{1,14} ){0,2}(?:evaluator|grader|chatbot|language model|llm|dan\b|unrestricted|ai\b))",
    "now on": r"\bfrom (?:now on|this point on(?:wards?)?|here on),? (?:you (?:will|must|should|are to"
    r"|shall) (?:only |always |never )?"
    r"(?:respond|answer|reply|output|give|score|rate|act|say|judge|approve|treat|follow|grade|obey)"
    r"|respond|reply|output|score|"
    r"rate|grade|mark|treat|obey)\b",
    "line": r"(?:^|\n)[ \t>*#\[(]{0,6}(?:system|developer|administrator|admin|root|openai|anthropic|user"
    r"|human|assistant)"
    r"(?: (?:message|prompt|override|notice|instruction|note|update"
    r"|command))?[ \t*\])]{0,4}:[ \t*]{0,4}\n?[ \t]{0,4}"
    r"(?:you (?:are|must|will|should)|ignore|new |override|score|rate|set |treat|mark |from now"
    r"|please (?:score|rate|ignore|mark|give)"
    r"|the (?:following|above|previous|next) |all (?:chunks|claims|previous)|grade|disregard|relevance"
    r"|this (?:chunk|passage|answer|claim)"
    r"|sure,? (?:the|here|i)|i (?:have|will) (?:graded|scored|verified|rate|give|score)|\{)",
    "message": r"\b(?:system|developer|admin(?:istrator)?)[ _-](?:override|prompt|message|instruction"
    r"|notice|update|note)s?[ \t\])*]{0,4}:",
    "tag": r"<\|[a-z_]{2,24}\|>|\[/?inst\]|<<?/?sys>>?|<(?:start|end)_of_turn>|\bassistant to=|</?(?:system"
    r"|system[_-](?:prompt|message|reminder|note)"
    r"|assistant|instructions?|function_calls|tool_results?|admin|evaluator|grader|judge)>"
    r"|###? ?(?:instructions?|system(?: prompt)?|response|human|assistant)[ \t]{0,2}:",
    "turns": r"(?:^|\n)[ \t]{0,4}(?:human|user)[ \t]{0,2}:[^\n]{0,400}\n{1,3}[ \t]{0,4}(?:assistant"
    r"|ai)[ \t]{0,2}:",
    "de": r"\bdu bist (?:jetzt|nun|ab sofort|nicht mehr) (?:\w{1,14} ){0,3}(?:ki\b|assistent|modell"
    r"|gutachter|bewerter|prufer)",
    "fr": r"\btu es (?:maintenant|desormais) (?:\w{1,14} ){0,3}(?:ia\b|assistant|modele|evaluateur"
    r"|correcteur|juge)",
    "es": r"\b(?:ahora eres|eres ahora|a partir de ahora eres) (?:\w{1,14} ){0,3}(?:ia\b|asistente|modelo"
    r"|evaluador|juez)",
    "ru": r"\bты (?:теперь|больше не|отныне) (?:\w{1,14} ){0,3}(?:ии\b|ассистент|модель|оценщик|судья"
    r"|эксперт)",
    "zh": rf"你(?:现在|不再|從現在起|从现在起|现在起){CHARACTER_GAP}(?:助手|模型|评委|评审|评估|裁判|人工智能)",
    "made": r"\byou (?:have been|were|are being|are) (?:reprogrammed|jailbroken|unlocked|freed from"
    r"|released from|liberated from|reset to|rebooted)\b",
    "simulate": r"\b(?:simulate|impersonate|emulate|play the (?:role|part) of) (?:an? "
    r"|the )(?:\w{1,14} ){0,2}(?:judge|evaluator|grader|ai|llm|language model"
    r"|chatbot|rater)\b",
    "banner": r"\b(?:begin|end|start)(?: of)?(?: the)?(?: new)? system (?:message|prompt|instructions?)\b",
}
"""You are another now."""

MARKUP_PATTERNS = {
    "ours": r"<</?[0-9a-f]{6,64}\b[^<>\n]{0,40}>>|<</[^<>\n]{1,60}>>",
    "tags": r"</(?:chunks?|passages?|claims?|quer(?:y|ies)|contexts?|retrieved|untrusted|statements?"
    r"|citations?|user_input|answer)"
    r"[\w -]{0,20}>",
    "banner": r"(?:^|\n)[ \t]{0,4}[-=#*~_\[(<]{2,40} ?(?:end|close|stop|finish|begin"
    r"|start)(?: of)?(?: the)?(?: \w{1,12}){0,2} "
    r"(?:chunks?|passages?|contexts?|quer(?:y|ies)|data|inputs?|texts?|documents?|answers?|prompt"
    r"|evaluation|instructions?)"
    r"(?: \w{1,4})? ?[-=#*~_\])>]{2,40}",
    "said": r"\b(?:end of|here ends|close) (?:the )?(?:untrusted|retrieved|delimited|fenced"
    r"|quoted) (?:data|texts?|chunks?|contents?|"
    r"inputs?|section|block)",
    "opened": r"<(?:chunk|passage|claim|query|context)\s{1,4}(?:id|relevance|score|name)\s{0,2}=",
}
"""The texts end here."""

VERDICT_PATTERNS = {
    "id": r"[{,]\s{0,4}\\?[\"']id\\?[\"']\s{0,4}:\s{0,4}\\?[\"'][cskftpr]\d{1,3}\\?[\"']",
    "field": r"\\?[\"'](?:relevance|support|covered|supports|groundedness|grounded|faithfulness|verdict"
    r"|contradicted)(?:_score)?\\?[\"']"
    r"\s{0,4}:\s{0,4}(?:[01](?:\.\d{1,4})?\b|true\b|false\b|\\?[\"'](?:supported|inferred|unsupported"
    r"|contradicted|high|relevant|pass"
    r"|yes|correct|1(?:\.0)?)\b)",
    "list": r"\\?[\"'](?:chunks|claims|statements|missing|citations|truth)\\?[\"']\s{0,4}:\s{0,4}\[",
    "plain": r"\b(?:relevance|relevancy|groundedness|faithfulness|support)(?: (?:score|level"
    r"|grade))?\s{0,2}[:=]\s{0,2}"
    r"(?:1(?:\.0+)?\b(?![.,]?\d)(?! ?[:/] ?\d)|100 ?%|10/10|high\b|supported\b|maximum\b)",
    "equals": r"\b(?:verdict|status|label)\s{0,2}[:=]\s{0,2}[\"'`]?(?:supported|fully supported|relevant"
    r"|grounded)\b|\bscore\s{0,2}[:=]\s{0,2}1\.0\b"
    r"|\b(?:relevance|groundedness|faithfulness) 1\.0\b",
    "quoted": r"[\"'„“”«](?:fully )?(?:supported|highly relevant)[\"'“”»]",
}
"""Here is the reply already."""

LINK_PATTERNS = {
    "image": r"!\[[^\]\n]{0,200}\]\(\s{0,4}(?:https?:)?//[^)\s]{1,300}?(?:\?|&|/)(?:data|secret|prompt"
    r"|context|leak|payload|exfil\w{0,10}"
    r"|conversation|history|token|key|stolen|info|answer|query|q|chunks?|text|c|d|msg|p)=[^)\n]{0,400}\)",
    "placed": r"\]\(\s{0,4}(?:https?:)?//[^)\s]{1,300}?(?:[{\[<$]|%7b)[^)\n]{1,200}\)",
    "html": r"<(?:img|iframe|script|link|object|embed)\b[^>\n]{0,200}?(?:src|href"
    r"|data)\s{0,2}=\s{0,2}[\"']?(?:https?:)?//[^>\s\"']{1,300}?"
    r"(?:[?&](?:data|secret|prompt|context|leak|payload|exfil\w{0,10}|conversation|history"
    r"|stolen|q|query|answer)=|[{\[$])",
    "script": r"\]\(\s{0,4}(?:javascript|vbscript|data:text/html)",
    "send": r"\b(?:send|post|append|forward|transmit|upload|exfiltrate|leak|encode"
    r"|embed)\b[^.!?\n]{0,80}?\b(?:conversation|prompts?|query"
    r"|quer(?:y|ies)|questions?|contexts?|secrets?|api keys?|passwords?|history|instructions|chunks?"
    r"|user data|answers?|documents?)\b"
    r"[^!?\n]{0,80}?(?:https?://|www\.)",
    "open": r"\b(?:fetch|visit|open|load|call|request|ping"
    r"|get)\b[^.!?\n]{0,30}https?://[^\s\"')]{1,200}=(?=[\s\"')]|$)",
}
"""Carry something out."""

PATTERNS_BY_KIND = (
    (
        "order",
        OVERRIDE_PATTERNS
        | {f"score {name}": pattern for name, pattern in SCORE_PATTERNS.items()}
        | ADDRESS_PATTERNS,
    ),
    ("role", {f"role {name}": pattern for name, pattern in ROLE_PATTERNS.items()}),
    ("mark", MARKUP_PATTERNS),
    ("verdict", VERDICT_PATTERNS),
    ("link", LINK_PATTERNS),
)


class InjectionPattern(NamedTuple):
    """What one kind of injection looks like."""

    kind: str
    regex: re.Pattern[str]
    prefixes: tuple[str, ...]
    """A text that holds none of these holds nothing that is sought; none: it may always."""


def _literal_prefixes(pattern: str) -> tuple[str, ...]:
    """The letters that a pattern begins with; none where that cannot be told."""
    sole = FIRST_WORD.match(pattern)
    choice = FIRST_CHOICE.match(pattern)
    if _has_alternatives(pattern) or not (sole or choice):
        return ()
    heads = (
        [LITERAL_HEAD.match(one) for one in choice.group(1).split("|")]
        if choice
        else [sole and LITERAL_HEAD.match(sole.group(1))]
    )
    return tuple(head.group() for head in heads if head) if all(heads) else ()


def _has_alternatives(pattern: str) -> bool:
    """Whether a pattern has alternatives that are in no group."""
    bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", pattern)
    while "(" in bare:
        bare, last = re.sub(r"\([^()]*\)", "", bare), bare
        if bare == last:
            return True
    return "|" in bare


FIRST_WORD = re.compile(r"(?:\\b)?([^\W\d_](?:[^\W\d_]| )*)(?=\(\?:|\[)")
"""A word that a pattern begins with."""
FIRST_CHOICE = re.compile(r"(?:\\b)?\(\?:([^()]{2,999})\)(?![?*{])")
"""Words that a pattern begins with one of."""
LITERAL_HEAD = re.compile(r"[^\W\d_](?:[^\W\d_]| (?=[^\W\d_]))*(?![?*{])")
"""The letters and spaces that stand for themselves."""
INJECTION_PATTERNS = tuple(
    InjectionPattern(kind, re.compile(pattern), _literal_prefixes(pattern))
    for kind, patterns in PATTERNS_BY_KIND
    for pattern in patterns.values()
)
"""All of them."""

COMPACT_PATTERN = re.compile(
    r"ignore(?:all|any)?(?:of)?(?:the|your)?(?:previous|prior|above)?(?:instruction|prompt|rule)"
    r"|disregard(?:all)?(?:the|your)?"
    r"(?:previous|prior|above)|scorethis|ratethis|fullysupported|highlyrelevant|systemprompt|markthis"
)
"""The same in letters that stand apart, taken together."""
