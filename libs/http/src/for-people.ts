/** Whether whoever asks is a browser that shows its answer to a person: clients name no HTML. */
export const wantsPage = (headers: Readonly<Record<string, string | readonly string[] | undefined>>): boolean =>
  /\btext\/html\b/i.test(String(headers['accept'] ?? ''));

/** Paths below which only programs ask, which rely on errors in JSON, also those that a person tries in a browser. */
const forPrograms = /^\/(?:_matrix\/(?!static(?:\/|$))|_synapse\/(?!client(?:\/|$))|\.well-known(?:\/|$))/;

/** Whether a person may have gone astray at a path that is not there. @param path with the standard prefixes */
export const isForPeople = (path: string): boolean => !forPrograms.test(path);
