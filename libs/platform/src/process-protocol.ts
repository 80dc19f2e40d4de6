/**
 * The version of what the processes of a server say to each other: calls, and requests that they pass on. Raised by one with a change
 * that the version before cannot be asked to understand: an upgrade goes from process to process, so each speaks and understands the
 * version before its own as well. Raised by two where that cannot be: such processes are never parts of one server.
 *
 * 3: requests go as frames; those of version 1 pass them on as HTTP. 4: some streams have several writers, whose positions are the
 * database's. 5: more of them do (push rules, lists of devices, subscriptions to threads).
 */
export const processProtocol = 5;

/** Whether processes of these two versions can be parts of one server. */
export const canSpeak = (one: number, other: number): boolean => Math.abs(one - other) <= 1;

/** What is spoken with a process of another version: the newer one knows both. */
export const spokenWith = (theirs: number): number => Math.min(theirs, processProtocol);

/** Whether this process understands what is said in a version. */
export const understands = (version: number): boolean => version === processProtocol || version === processProtocol - 1;

/** Why two processes cannot speak with each other, said of the one that is called. */
export const tooFarApart = (called: number, caller: number): string =>
  `it speaks version ${called} between processes, the caller version ${caller}: run versions of the server that follow each other`;
