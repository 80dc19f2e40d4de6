import { wordsOf } from '../text/words.js';

/** The fields that a search may look into. @spec client-server-api#post_matrixclientv3search */
export const searchKeys = ['content.body', 'content.name', 'content.topic'] as const;
export type SearchKey = (typeof searchKeys)[number];

const fieldOfType: Readonly<Record<string, readonly [key: SearchKey, field: string]>> = {
  'm.room.message': ['content.body', 'body'],
  'm.room.name': ['content.name', 'name'],
  'm.room.topic': ['content.topic', 'topic'],
};

/** Types of events that can be found. */
export const searchableTypes: readonly string[] = Object.keys(fieldOfType);

/** Words of one event that are indexed. */
const maxWords = 2_000;

/** Under which words an event is found, and in which field they lie; `undefined` for an event without any. */
export function searchableWords(
  type: string,
  content: Readonly<Record<string, unknown>>,
): { readonly key: SearchKey; readonly words: readonly string[] } | undefined {
  const found = Object.hasOwn(fieldOfType, type) ? fieldOfType[type] : undefined;
  const text = found === undefined ? undefined : content[found[1]];
  if (found === undefined || typeof text !== 'string') return undefined;
  const words = wordsOf(text, maxWords);
  return words.length === 0 ? undefined : { key: found[0], words };
}
