// The examples: their texts are files, so that they can be read by themselves. The first is the one to begin with;
// `ratio` is the size that it is first shown at, where that is not the page's own.
export const EXAMPLES = [
  {
    name: "Agent trace",
    lang: "en",
    files: ["trace.txt"],
    query: "Which change made the checkout tests fail?",
    ratio: 0.25,
  },
  {
    name: "Article",
    lang: "en",
    files: ["article.txt"],
    query: "Why was the second span of the bridge closed, and when does it reopen?",
  },
  {
    name: "Support ticket",
    lang: "en",
    files: ["ticket.txt"],
    query: "What caused the duplicate invoices, and what was promised to the customer?",
  },
  {
    name: "مقال",
    lang: "ar",
    files: ["article.ar.txt"],
    query: "متى يعاد فتح المكتبة، ولماذا أُغلقت؟",
  },
];
