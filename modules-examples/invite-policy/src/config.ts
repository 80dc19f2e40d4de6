import { ConfigError } from '@rookery/module-api';

/** What becomes of an invite. `drop`: the inviter sees success, the invitee sees nothing. */
export type Action = 'allow' | 'deny' | 'drop';

/** One rule; what it leaves out fits everybody. */
export interface Rule {
  readonly from: RegExp | undefined;
  readonly to: RegExp | undefined;
  /** Whether the two have to share a room already, or must not. */
  readonly sharedRoom: boolean | undefined;
  readonly action: Action;
}

export interface InvitePolicyConfig {
  /** The first that fits decides. */
  readonly rules: readonly Rule[];
  /** When none fits. */
  readonly otherwise: Action;
  readonly message: string;
}

const maxRules = 1000;
const actions: readonly unknown[] = ['allow', 'deny', 'drop'];

/** Checks the module's `config`: `rules`, `otherwise`, `message`. @throws ConfigError */
export function parseConfig(raw: unknown): InvitePolicyConfig {
  const {
    rules = [],
    otherwise = 'allow',
    message = 'You may not invite this user',
  } = objectAt(raw, [], ['rules', 'otherwise', 'message']);
  if (!Array.isArray(rules) || rules.length > maxRules)
    throw new ConfigError(`expected a list of at most ${maxRules} rules`, ['rules']);
  if (typeof message !== 'string') throw new ConfigError('expected a text', ['message']);
  return {
    rules: rules.map((rule: unknown, i) => parseRule(rule, ['rules', i])),
    otherwise: actionAt(otherwise, ['otherwise']),
    message,
  };
}

function parseRule(raw: unknown, path: readonly (string | number)[]): Rule {
  const { from, to, shared_room: sharedRoom, action } = objectAt(raw, path, ['from', 'to', 'shared_room', 'action']);
  if (sharedRoom !== undefined && typeof sharedRoom !== 'boolean') {
    throw new ConfigError('expected true or false', [...path, 'shared_room']);
  }
  return {
    from: globAt(from, [...path, 'from']),
    to: globAt(to, [...path, 'to']),
    sharedRoom,
    action: actionAt(action, [...path, 'action']),
  };
}

function objectAt(raw: unknown, path: readonly (string | number)[], names: readonly string[]): Record<string, unknown> {
  if (typeof raw !== 'object' || raw === null || Array.isArray(raw)) throw new ConfigError('expected an object', path);
  for (const name of Object.keys(raw)) {
    if (!names.includes(name)) throw new ConfigError(`is unknown; there are ${names.join(', ')}`, [...path, name]);
  }
  return raw as Record<string, unknown>;
}

function actionAt(value: unknown, path: readonly (string | number)[]): Action {
  if (!actions.includes(value)) throw new ConfigError('expected allow, deny or drop', path);
  return value as Action;
}

/** Names of servers make no difference between large and small letters. */
export const comparable = (userId: string): string => {
  const at = userId.indexOf(':');
  return at < 0 ? userId : userId.slice(0, at) + userId.slice(at).toLowerCase();
};

/** User ids in which `*` stands for any text, twice at most: so matching stays cheap. */
function globAt(value: unknown, path: readonly (string | number)[]): RegExp | undefined {
  if (value === undefined) return undefined;
  if (typeof value !== 'string' || value === '' || value.split('*').length > 3) {
    throw new ConfigError('expected a user id such as @bot:example.org or *:example.org, with at most two *', path);
  }
  const parts = comparable(value)
    .split('*')
    .map((part) => part.replace(/[\\^$.+?()[\]{}|]/g, '\\$&'));
  return new RegExp(`^${parts.join('.*')}$`, 's');
}
