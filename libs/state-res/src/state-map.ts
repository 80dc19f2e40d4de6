/**
 * The state of a room at one point: event ids by {@link stateKeyOf} keys. Never changed once shared.
 * @spec server-server-api#room-state-resolution
 */
export type StateMap = ReadonlyMap<string, string>;

/**
 * Joins an event type and a state key into one key of a {@link StateMap}: the type's length in UTF-16 units, a colon,
 * the type, the state key. Unlike a separator character, a length cannot be forged by whoever names the event.
 */
export function stateKeyOf(type: string, stateKey: string): string {
  return `${type.length}:${type}${stateKey}`;
}

/** Takes a key of {@link stateKeyOf} apart. The key must come from there. */
export function splitStateKey(key: string): readonly [type: string, stateKey: string] {
  const colon = key.indexOf(':');
  const end = colon + 1 + Number(key.slice(0, colon));
  return [key.slice(colon + 1, end), key.slice(end)];
}
