import * as k from '../kinds.js';
import { optional, setting } from '../setting.js';
import { roomId } from './shapes.js';

const aliasRule = k.object({
  user_id: k.field(k.text(), '*', 'Glob of the user.'),
  alias: k.field(k.text(), '*', 'Glob of the alias.'),
  room_id: k.field(k.text(), '*', 'Glob of the room.'),
  action: k.field(k.oneOf('allow', 'deny'), 'allow', 'What holds when all three match.'),
});

const levels = k.mapOf(k.anything);
/** What is set of one preset; `null` for nothing. */
const presetLevels: typeof levels = {
  ...levels,
  schema: k.orNull(levels.schema),
  read: (value, path, context) => levels.read(value ?? {}, path, context),
};

const eventType: k.Kind<string | readonly [string, string]> = {
  label: 'event type, or pair of event type and state key',
  expected: 'an event type, or a pair [event type, state key]',
  schema: { anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' }, minItems: 2, maxItems: 2 }] },
  read(value, path, context) {
    if (typeof value === 'string') return value;
    if (Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === 'string'))
      return value as [string, string];
    context.error(path, `expected ${this.expected}, found ${k.shown(value)}`);
    return undefined;
  },
};

/** Rooms, directories, push, statistics. */
export const roomSettings = {
  'push.enabled': setting(k.flag, true, 'Send push notifications.'),
  'push.include_content': setting(k.flag, true, 'With the content of the message.'),
  'push.redact_content': optional(k.flag, 'Old form of `push.include_content`, inverted.', {
    deprecated: 'write push.include_content',
  }),
  'push.group_unread_count_by_room': setting(k.flag, true, 'The badge counts rooms instead of messages.'),
  'push.jitter_delay': setting(k.duration, 0, 'Spread pushes over so long.'),
  encryption_enabled_by_default_for_room_type: setting(
    k.mapped(k.oneOf('all', 'invite', 'off', false), (value) => value || 'off'),
    'off',
    'New rooms that are encrypted by default.',
  ),
  'user_directory.enabled': setting(k.flag, true, 'Users may search for others.'),
  'user_directory.search_all_users': setting(
    k.flag,
    false,
    'Find everybody, not only those in common or public rooms.',
  ),
  'user_directory.prefer_local_users': setting(k.flag, false, "Show this server's users first."),
  'user_directory.exclude_remote_users': setting(k.flag, false, "Show this server's users only."),
  'user_directory.show_locked_users': setting(k.flag, false, 'Show locked users.'),
  'stats.enabled': setting(
    k.flag,
    true,
    'Count the rooms that users are in (`user_stats_current`). Figures of rooms are kept in any case: clients and the room directory need them.',
  ),
  enable_room_list_search: setting(k.flag, true, 'Answer searches in the room directory.'),
  alias_creation_rules: optional(
    k.list(aliasRule),
    'Who may make which alias: the first rule that matches; none matches: deny. Unset: everybody.',
  ),
  room_list_publication_rules: optional(
    k.list(aliasRule),
    'Who may publish which room: the first rule that matches; none matches: deny. Unset: administrators only.',
    { since: '1.126' },
  ),
  default_power_level_content_override: optional(k.mapOf(presetLevels), 'Power levels of new rooms, by preset.'),
  forget_rooms_on_leave: setting(k.flag, false, 'Whoever leaves a room, or is removed from it, forgets it.'),
  // A client lets go of a room when it is told that its user has left. Nobody has, and clients go by the event that would say so.
  exclude_rooms_from_sync: setting(
    k.list(roomId),
    [],
    'Rooms that never show in a sync. Put one here before people join it: a client that has it keeps it as it was, and one that logged in ' +
      'meanwhile gets of a room that is taken off the list what changes from then on. Both have all of it, and encrypt for those who are in it, ' +
      'once they log in anew.',
  ),
  exclude_rooms_from_presence: setting(k.list(roomId), [], 'Rooms whose members do not see presence because of them.', {
    since: '1.157',
  }),
  'room_prejoin_state.disable_default_event_types': setting(k.flag, false, 'Send only the types below with invites.', {
    since: '1.34',
  }),
  'room_prejoin_state.additional_event_types': setting(
    k.list(eventType),
    [],
    'More state that invited users see: a type, with all its state keys, or a pair of type and state key.',
    { since: '1.34' },
  ),
  room_invite_state_types: optional(k.list(k.text({ empty: false })), 'Old form of both, as the whole list.', {
    deprecated: 'write room_prejoin_state',
    rule: 'Not together with `room_prejoin_state`.',
  }),
};
