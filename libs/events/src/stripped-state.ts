import { fitsBytes, isJsonObject, type JsonObject, maxIdBytes, type StrippedState } from '@rookery/matrix-types';
import type { RoomEvent } from './event.js';

/** An event as people outside the room see it. */
export const stripped = (event: RoomEvent): StrippedState => ({
  type: event.type,
  state_key: event.stateKey ?? '',
  sender: event.sender,
  content: event.content,
});

/** Entries of another server's stripped state that are looked at. */
const maxStripped = 100;
/** Largest stripped state that is kept, characters of JSON. */
const maxStrippedSize = 131_072;

/**
 * What another server shows of a room with an invite or a knock, as clients may see it: whole PDUs or stripped, whichever
 * it sent. What is no state event is left out, so is what comes after too much.
 * @param told anything
 */
export function strippedStateFrom(told: unknown): StrippedState[] {
  if (!Array.isArray(told)) return [];
  const state: StrippedState[] = [];
  let size = 0;
  for (const entry of told.slice(0, maxStripped)) {
    if (!isJsonObject(entry)) continue;
    const { type, state_key, sender, content } = entry;
    if (!isShort(type) || !isShort(state_key) || !isShort(sender) || !isJsonObject(content)) continue;
    // A plain copy: numbers that are not canonical must not be anything else than numbers to clients.
    const text = JSON.stringify({ type, state_key, sender, content });
    if ((size += text.length) > maxStrippedSize) break;
    state.push(JSON.parse(text) as StrippedState);
  }
  return state;
}

const isShort = (value: unknown): value is string => typeof value === 'string' && fitsBytes(value, maxIdBytes);

/** The state that an invite or a knock shows to its target; empty for other events. */
export function prejoinStateOf(event: RoomEvent): readonly JsonObject[] {
  const unsigned = event.pdu['unsigned'] as JsonObject | undefined;
  const state = unsigned?.['invite_room_state'] ?? unsigned?.['knock_room_state'];
  return Array.isArray(state) ? (state as JsonObject[]) : [];
}
