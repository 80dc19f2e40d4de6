import { Injectable } from '@nestjs/common';
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
