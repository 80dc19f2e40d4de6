import { Injectable } from '@nestjs/common';
import type { RoomEvent } from '@rookery/events';
import { fitsBytes, isJsonObject, maxIdBytes, type StrippedState } from '@rookery/matrix-types';
import { Config } from '@rookery/platform';
import { splitStateKey, stateKeyOf } from '@rookery/state-res';

const defaultTypes = [
  'm.room.join_rules',
  'm.room.canonical_alias',
  'm.room.avatar',
  'm.room.encryption',
  'm.room.name',
  'm.room.topic',
];

/** Which state people see of a room before they are in it. */
@Injectable()
export class PrejoinState {
  readonly #keys: readonly string[];

  constructor(config: Config) {
    const old = config.get('room_invite_state_types');
    const additional = config.get('room_prejoin_state.additional_event_types') ?? [];
    const defaults = config.get('room_prejoin_state.disable_default_event_types') ? [] : defaultTypes;
    const types: readonly (readonly [string, string])[] = old
      ? old.map((type) => [type, ''])
      : [
          ...defaults.map((type): [string, string] => [type, '']),
          ...additional.map((entry): [string, string] =>
            typeof entry === 'string' ? [entry, ''] : [entry[0], entry[1] ?? ''],
          ),
        ];
    this.#keys = [...new Set(['m.room.create', ...types].map((entry) => keyOf(entry)))];
  }

  /** Keys of the state that is shown, with the member event of whoever invites. */
  keys(inviter?: string): string[] {
    return inviter === undefined ? [...this.#keys] : [...this.#keys, stateKeyOf('m.room.member', inviter)];
  }

  /** Types and state keys of {@link keys}. */
  types(): readonly (readonly [type: string, stateKey: string])[] {
    return this.#keys.map(splitStateKey);
  }
}

const keyOf = (entry: string | readonly [string, string]): string =>
  typeof entry === 'string' ? stateKeyOf(entry, '') : stateKeyOf(entry[0], entry[1]);

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
