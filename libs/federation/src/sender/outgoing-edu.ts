import { canonicalJson, InvalidEventError, parseJson } from '@rookery/events';

/** An EDU on its way out. */
export interface OutgoingEdu {
  readonly type: string;
  /** As it lies in a transaction, canonical JSON. */
  readonly text: string;
}

/** Makes an EDU of its content. */
export function eduOf(type: string, content: object): OutgoingEdu {
  return { type, text: canonicalJson({ content, edu_type: type }) };
}

/** The same from JSON text; `undefined` for what has no canonical form: nobody could check our signature. */
export function eduOfText(type: string, contentText: string): OutgoingEdu | undefined {
  try {
    return eduOf(type, parseJson(contentText) as object);
  } catch (error) {
    if (error instanceof InvalidEventError) return undefined;
    throw error;
  }
}

/** Part of what lies in the database for a server. */
export interface StoredEdus {
  /** In the order in which they are to arrive. */
  readonly edus: readonly OutgoingEdu[];
  /** Whether there was no more at the time. */
  readonly isAll: boolean;
  /** Forgets them: the server has got them. */
  delivered(): Promise<void>;
}

/** Names of the kinds of EDUs that lie in the database. */
export type StoreName = 'device_lists' | 'to_device';

/** EDUs that must not be lost: they lie in the database until a server has them. */
export interface EduStore {
  readonly name: StoreName;
  /** The next ones for a server, at most `limit` and not much more than a megabyte. */
  next(destination: string, limit: number): Promise<StoredEdus>;
  /** Servers for which something lies there. */
  destinations(): Promise<string[]>;
}
