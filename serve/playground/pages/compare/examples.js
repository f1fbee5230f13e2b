// Questions to compare, over documents as a search may bring them, of which one has the answer. They were chosen by trying: the
// default model, which is small, finds these answers in what is kept. Each begins with another document, so that an engine
// which still has the last one in its cache reads this one anew. `ratio` is the size that a text is first compressed to.
const [ARTICLE, TICKET, TRACE] = ["article.txt", "ticket.txt", "trace.txt"];

export const QUESTIONS = [
  {
    name: "A cost",
    lang: "en",
    files: [ARTICLE, TICKET, TRACE],
    query: "How much does the repair of the bridge cost?",
    ratio: 0.1,
  },
  {
    name: "A name",
    lang: "en",
    files: [TICKET, ARTICLE, TRACE],
    query: "Who is the engineer in charge of the bridge?",
    ratio: 0.1,
  },
  {
    name: "A date",
    lang: "en",
    files: [TRACE, TICKET, ARTICLE],
    query: "When does the second span of the bridge reopen?",
    ratio: 0.1,
  },
];
