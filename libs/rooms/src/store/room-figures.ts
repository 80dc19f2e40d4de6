import type { SqlValue } from '@rookery/database';
import { isJsonObject } from '@rookery/matrix-types';

/** The state types that rooms are listed by: column and where its value lies. */
const columnsByType = {
  'm.room.name': ['name', 'name'],
  'm.room.topic': ['topic', 'topic'],
  'm.room.canonical_alias': ['canonical_alias', 'alias'],
  'm.room.join_rules': ['join_rules', 'join_rule'],
  'm.room.history_visibility': ['history_visibility', 'history_visibility'],
  'm.room.encryption': ['encryption', 'algorithm'],
  'm.room.avatar': ['avatar', 'url'],
  'm.room.guest_access': ['guest_access', 'guest_access'],
} as const;

/** A column of `room_stats_state`. */
export type FigureColumn = (typeof columnsByType)[keyof typeof columnsByType][0] | 'room_type' | 'is_federatable';

/** The types whose events fill them. */
export const figureTypes: readonly string[] = ['m.room.create', ...Object.keys(columnsByType)];

/** All of them. */
export const figureColumnNames: readonly FigureColumn[] = [
  ...Object.values(columnsByType).map(([column]) => column),
  'room_type',
  'is_federatable',
];

/** What a state event with an empty state key says about its room, by column. */
export function figuresIn(
  type: string,
  content: Readonly<Record<string, unknown>>,
): readonly (readonly [column: FigureColumn, value: SqlValue])[] {
  if (type === 'm.room.create') {
    return [
      ['room_type', textIn(content, 'type')],
      ['is_federatable', content['m.federate'] !== false],
    ];
  }
  if (!Object.hasOwn(columnsByType, type)) return [];
  const [column, key] = columnsByType[type as keyof typeof columnsByType];
  return [[column, (column === 'topic' ? plainTopicIn(content) : undefined) ?? textIn(content, key)]];
}

/**
 * The plain text among the forms that a topic is given in, if there is one.
 * @spec client-server-api#mroomtopic
 */
function plainTopicIn(content: Readonly<Record<string, unknown>>): string | undefined {
  const topic = content['m.topic'];
  const forms = isJsonObject(topic) && Array.isArray(topic['m.text']) ? topic['m.text'] : [];
  const plain: unknown = forms.find(
    (form) => isJsonObject(form) && (form['mimetype'] === undefined || form['mimetype'] === 'text/plain'),
  );
  return isJsonObject(plain) ? (textIn(plain, 'body') ?? undefined) : undefined;
}

const textIn = (content: Readonly<Record<string, unknown>>, key: string): string | null => {
  const value = content[key];
  return typeof value === 'string' ? value.replaceAll('\0', '') : null;
};
