// Fields that the server, or the page itself, cannot take: in words, and with the names that the page gives them.
const LABELS = {
  "compression.keep": "Promise",
  "compression.target_ratio": "Ratio",
  input: "Context",
  max_tokens: "Most tokens",
  messages: "Conversation",
  model: "Model",
  query: "Question",
  temperature: "Temperature",
};
const RULES = {
  less_than_equal: ({ le }) => `must be ${le} or less`,
  greater_than_equal: ({ ge }) => `must be ${ge} or more`,
  less_than: ({ lt }) => `must be less than ${lt}`,
  greater_than: ({ gt }) => `must be more than ${gt}`,
  int_type: () => "must be a whole number",
  float_type: () => "must be a number",
  finite_number: () => "must be a number",
  too_long: ({ max_length: most }) => `may hold ${most} messages at most. Begin a new one`,
  string_too_long: ({ max_length: most }) => `may hold ${most} characters at most`,
  missing: () => "is needed",
};

export const issueWords = (issues) => issues.map(inWords).join(" ");

function inWords({ type, loc, msg, ctx }) {
  // What the page sends is JSON, but for half of a pair that stands for one character.
  if (type === "json_invalid") return "The text has half of a character, which cannot be sent. Delete it, or paste the text again.";
  const path = loc.filter((step) => typeof step === "string").slice(1);
  const label = LABELS[path.join(".")] ?? LABELS[path[0]] ?? path.join(".");
  const rule = RULES[type]?.(ctx ?? {});
  if (rule) return `${label} ${rule}.`;
  const said = msg.replace(/^(Input|Value|String|List) should/, "should").replace(/\.$/, "");
  return label ? `${label}: ${said}.` : `${said[0].toUpperCase()}${said.slice(1)}.`;
}

// What is wrong with a number that was typed in; empty where nothing is.
export function numberFault(field) {
  const { validity } = field;
  const label = field.labels[0].textContent;
  if (validity.badInput || validity.valueMissing) return `${label} must be a number.`;
  if (validity.rangeOverflow) return `${label} ${RULES.less_than_equal({ le: field.max })}.`;
  if (validity.rangeUnderflow) return `${label} ${RULES.greater_than_equal({ ge: field.min })}.`;
  return validity.stepMismatch ? `${label} ${RULES.int_type()}.` : "";
}
