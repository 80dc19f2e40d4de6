import {
  anyObject,
  either,
  type Fitting,
  flag,
  list,
  nothing,
  number,
  object,
  oneOf,
  optional,
  record,
  text,
  whole,
} from './shapes.js';

const size = { h: optional(whole), w: optional(whole) };
const file = { mimetype: optional(text), size: optional(whole) };
const imageInfo = object({
  ...size,
  ...file,
  duration: optional(whole),
  is_animated: optional(flag),
  thumbnail_url: optional(text),
  thumbnail_file: optional(anyObject),
  thumbnail_info: optional(object({ ...size, ...file })),
});
const party = { call_id: text, version: text, party_id: text };
const description = object({ type: oneOf('offer', 'answer'), sdp: text });
const streams = record(
  object({
    purpose: oneOf('m.usermedia', 'm.screenshare'),
    audio_muted: optional(flag),
    video_muted: optional(flag),
  }),
);
const policyRule = object({ entity: text, recommendation: text, reason: text });
const relation = optional(object({ rel_type: optional(text), event_id: optional(text), key: optional(text) }));
const pushRule = object({
  actions: list(either(text, anyObject)),
  default: flag,
  enabled: flag,
  rule_id: text,
  conditions: optional(list(anyObject)),
  pattern: optional(text),
});
const pushRules = optional(list(pushRule));

/**
 * What stands in the events and in the account data that the specification knows, by type. Fields that only some room
 * versions or message types have are optional, and values that others may add to are texts.
 */
const shapes = {
  'm.call.answer': object({ ...party, answer: description, sdp_stream_metadata: optional(streams) }),
  'm.call.candidates': object({
    ...party,
    candidates: list(object({ sdpMid: optional(text), sdpMLineIndex: optional(number), candidate: text })),
  }),
  'm.call.hangup': object({ ...party, reason: text }),
  'm.call.invite': object({
    ...party,
    offer: description,
    lifetime: whole,
    invitee: optional(text),
    sdp_stream_metadata: optional(streams),
  }),
  'm.call.negotiate': object({ ...party, description, lifetime: whole, sdp_stream_metadata: optional(streams) }),
  'm.call.reject': object(party),
  'm.call.sdp_stream_metadata_changed': object({ ...party, sdp_stream_metadata: streams }),
  'm.call.select_answer': object({ ...party, selected_party_id: text }),
  'm.policy.rule.room': policyRule,
  'm.policy.rule.server': policyRule,
  'm.policy.rule.user': policyRule,
  'm.reaction': object({ 'm.relates_to': relation }),
  'm.room.avatar': object({ url: optional(text), info: optional(imageInfo) }),
  'm.room.canonical_alias': object({ alias: optional(text), alt_aliases: optional(list(text)) }),
  'm.room.create': object({
    creator: optional(text),
    'm.federate': optional(flag),
    room_version: optional(text),
    type: optional(text),
    predecessor: optional(object({ room_id: text, event_id: optional(text) })),
    additional_creators: optional(list(text)),
  }),
  'm.room.encrypted': object({
    algorithm: text,
    ciphertext: either(text, record(object({ body: optional(text), type: optional(whole) }))),
    sender_key: optional(text),
    device_id: optional(text),
    session_id: optional(text),
  }),
  'm.room.encryption': object({
    algorithm: text,
    rotation_period_ms: optional(whole),
    rotation_period_msgs: optional(whole),
  }),
  'm.room.guest_access': object({ guest_access: oneOf('can_join', 'forbidden') }),
  'm.room.history_visibility': object({
    history_visibility: oneOf('invited', 'joined', 'shared', 'world_readable'),
  }),
  'm.room.image_pack': object({
    images: record(object({ url: text, body: optional(text), info: optional(imageInfo) })),
    pack: optional(
      object({
        display_name: optional(text),
        avatar_url: optional(text),
        usage: optional(list(text)),
        attribution: optional(text),
      }),
    ),
  }),
  'm.room.join_rules': object({
    join_rule: oneOf('public', 'knock', 'invite', 'private', 'restricted', 'knock_restricted'),
    allow: optional(list(object({ type: text, room_id: optional(text) }))),
  }),
  'm.room.member': object({
    membership: oneOf('invite', 'join', 'knock', 'leave', 'ban'),
    displayname: optional(either(text, nothing)),
    avatar_url: optional(either(text, nothing)),
    is_direct: optional(flag),
    join_authorised_via_users_server: optional(text),
    reason: optional(text),
    third_party_invite: optional(
      object({
        display_name: text,
        signed: object({ mxid: text, signatures: record(record(text)), token: text }),
      }),
    ),
  }),
  'm.room.message': object({
    msgtype: text,
    body: text,
    format: optional(text),
    formatted_body: optional(text),
    filename: optional(text),
    url: optional(text),
    file: optional(anyObject),
    info: optional(imageInfo),
    geo_uri: optional(text),
    server_notice_type: optional(text),
    admin_contact: optional(text),
    limit_type: optional(text),
    'm.relates_to': optional(anyObject),
    'm.new_content': optional(anyObject),
    'm.mentions': optional(object({ user_ids: optional(list(text)), room: optional(flag) })),
  }),
  'm.room.name': object({ name: text }),
  'm.room.pinned_events': object({ pinned: list(text) }),
  'm.room.policy': object({ via: text, public_keys: record(text) }),
  'm.room.power_levels': object({
    ban: optional(whole),
    events: optional(record(whole)),
    events_default: optional(whole),
    invite: optional(whole),
    kick: optional(whole),
    redact: optional(whole),
    state_default: optional(whole),
    users: optional(record(whole)),
    users_default: optional(whole),
    notifications: optional(record(whole)),
  }),
  'm.room.redaction': object({ redacts: optional(text), reason: optional(text) }),
  'm.room.server_acl': object({
    allow_ip_literals: optional(flag),
    allow: optional(list(text)),
    deny: optional(list(text)),
  }),
  'm.room.third_party_invite': object({
    display_name: text,
    key_validity_url: text,
    public_key: text,
    public_keys: optional(list(object({ key_validity_url: optional(text), public_key: text }))),
  }),
  'm.room.tombstone': object({ body: text, replacement_room: text }),
  'm.room.topic': object({
    topic: text,
    'm.topic': optional(object({ 'm.text': optional(list(object({ mimetype: optional(text), body: text }))) })),
  }),
  'm.space.child': object({ via: list(text), order: optional(text), suggested: optional(flag) }),
  'm.space.parent': object({ via: list(text), canonical: optional(flag) }),
  'm.sticker': object({ body: text, info: imageInfo, url: text }),

  'm.accepted_terms': object({ accepted: optional(list(text)) }),
  'm.direct': record(list(text)),
  'm.fully_read': object({ event_id: text }),
  'm.identity_server': object({ base_url: optional(either(text, nothing)) }),
  'm.ignored_user_list': object({ ignored_users: record(anyObject) }),
  'm.image_pack.rooms': object({ rooms: record(record(anyObject)) }),
  'm.invite_permission_config': object({ default_action: optional(text) }),
  'm.marked_unread': object({ unread: flag }),
  'm.push_rules': object({
    global: optional(
      object({
        content: pushRules,
        override: pushRules,
        room: pushRules,
        sender: pushRules,
        underride: pushRules,
      }),
    ),
  }),
  'm.recent_emoji': object({ recent_emoji: list(object({ emoji: text, total: number })) }),
  'm.tag': object({ tags: optional(record(object({ order: optional(number) }))) }),
};

/**
 * Contents of events and of account data by type, as the specification says.
 * @spec client-server-api#room-events
 */
export type EventContents = { readonly [Type in keyof typeof shapes]: Fitting<(typeof shapes)[Type]> };

/** Types of which {@link contentOf} knows the content. */
export const typesWithContent: readonly (keyof EventContents)[] = Object.freeze(
  Object.keys(shapes) as (keyof EventContents)[],
);

/**
 * The content of an event, with its type: `undefined` when the event is of another type, or when what stands in it is not
 * what the specification says. Anybody can send anything, and a redacted event has little left: so look before you use it.
 * Fields that the specification does not know stay in `event.content`.
 *
 * ```ts
 * const member = contentOf(event, 'm.room.member');
 * if (member?.membership === 'join') api.log.info('Somebody joined', { name: member.displayname });
 * ```
 */
export function contentOf<Type extends keyof EventContents>(
  event: { readonly type: string; readonly content: Readonly<Record<string, unknown>> },
  type: Type,
): EventContents[Type] | undefined {
  if (event.type !== type || !Object.hasOwn(shapes, type) || !shapes[type].fits(event.content)) return undefined;
  return event.content as EventContents[Type];
}
