/** Who may read what happens in a room. @spec client-server-api#room-history-visibility */
export type HistoryVisibility = 'world_readable' | 'shared' | 'invited' | 'joined';

const known: ReadonlySet<unknown> = new Set<HistoryVisibility>(['world_readable', 'shared', 'invited', 'joined']);

/** Reads `history_visibility` of the content of `m.room.history_visibility`; anything else counts as the default, `shared`. */
export function historyVisibilityIn(content: Readonly<Record<string, unknown>> | undefined): HistoryVisibility {
  const value = content?.['history_visibility'];
  return known.has(value) ? (value as HistoryVisibility) : 'shared';
}
