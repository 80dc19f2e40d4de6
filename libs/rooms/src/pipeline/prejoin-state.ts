import { Injectable } from '@nestjs/common';
import { Config } from '@rookery/platform';
import { splitStateKey, stateKeyOf } from '@rookery/state-res';
import type { StateFilter } from '../state/state-filter.js';

const defaultTypes = [
  'm.room.create',
  'm.room.join_rules',
  'm.room.canonical_alias',
  'm.room.avatar',
  'm.room.encryption',
  'm.room.name',
  'm.room.topic',
];

/** Events that are shown beside those that are named by type and state key: a room may have any number of one type. */
const maxOthers = 50;

/** Ids of a room's state, by `stateKeyOf`. */
type Ids = Pick<ReadonlyMap<string, string>, 'get' | 'keys'>;

/** Which state people see of a room before they are in it: what {@link types} names of it, and of that {@link idsAmong}. */
@Injectable()
export class PrejoinState {
  readonly #keys: readonly string[];
  /** Types of which every state key is shown. */
  readonly #wholeTypes: readonly string[];

  constructor(config: Config) {
    const old = config.get('room_invite_state_types');
    const configured = old ?? config.get('room_prejoin_state.additional_event_types') ?? [];
    const hasDefaults = old === undefined && !config.get('room_prejoin_state.disable_default_event_types');
    const pairs = configured.map((entry) => (typeof entry === 'string' ? ([entry, ''] as const) : entry));
    const named = [...(hasDefaults ? defaultTypes : ['m.room.create']).map((type) => [type, ''] as const), ...pairs];
    this.#keys = [...new Set(named.map(([type, stateKey]) => stateKeyOf(type, stateKey)))];
    this.#wholeTypes = configured.filter((entry) => typeof entry === 'string');
  }

  /** What may be shown, as a part of the room's state; with the member event of whoever invites. */
  types(inviter?: string): NonNullable<StateFilter['types']> {
    return [...this.#keysWith(inviter).map(splitStateKey), ...this.#wholeTypes.map((type) => [type] as const)];
  }

  /** The events of a state that are shown; a bounded number, however large it is. @param inviter as in {@link types} */
  idsAmong(state: Ids, inviter?: string): string[] {
    const shown = new Set(this.#keysWith(inviter));
    const most = shown.size + maxOthers;
    const prefixes = this.#wholeTypes.map((type) => stateKeyOf(type, ''));
    if (prefixes.length > 0)
      for (const key of state.keys()) {
        if (shown.size >= most) break;
        if (prefixes.some((prefix) => key.startsWith(prefix))) shown.add(key);
      }
    return [...shown].flatMap((key) => state.get(key) ?? []);
  }

  #keysWith(inviter: string | undefined): string[] {
    return inviter === undefined ? [...this.#keys] : [...this.#keys, stateKeyOf('m.room.member', inviter)];
  }
}
