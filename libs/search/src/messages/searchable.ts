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

/** Types of events that have one of the fields. */
export const typesWith = (keys: readonly SearchKey[]): readonly string[] =>
  Object.entries(fieldOfType).flatMap(([type, [key]]) => (keys.includes(key) ? [type] : []));

/** Words of one event that are indexed. */
const maxWords = 2_000;

/** Under which words an event is found; none for one that is not looked for. */
export function searchableWords(type: string, content: Readonly<Record<string, unknown>>): readonly string[] {
  const field = Object.hasOwn(fieldOfType, type) ? fieldOfType[type]?.[1] : undefined;
  const text = field === undefined ? undefined : content[field];
  return typeof text === 'string' ? wordsOf(text, maxWords) : [];
}
