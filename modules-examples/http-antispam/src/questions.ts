import type { ModuleEvent, RequestInfo, UserProfile } from '@rookery/module-api';

/** What the service may be asked about, and what Synapse calls the callback; where there is none, it is asked in the own form only. */
export const subjects = {
  event: 'check_event_for_spam',
  invite: 'user_may_invite',
  remote_invite: 'federated_user_may_invite',
  threepid_invite: 'user_may_send_3pid_invite',
  join: 'user_may_join_room',
  room: 'user_may_create_room',
  alias: 'user_may_create_room_alias',
  publish: 'user_may_publish_room',
  username: 'check_username_for_spam',
  registration: undefined,
  login: 'check_login_for_spam',
} as const;
export type Subject = keyof typeof subjects;

/** A question: in the module's own form, and in that of the callback. */
export interface Question {
  readonly subject: Subject;
  readonly details: object;
  /** The callback's arguments. Default: `details`. */
  readonly callback?: object;
}

const detailsOf = ({ eventId, roomId, type, stateKey, sender, originServerTs, content }: ModuleEvent): object => ({
  ...{ event_id: eventId, room_id: roomId, type, state_key: stateKey, sender, content },
  origin_server_ts: originServerTs,
});

/** The questions, each of the arguments that the module is asked with. */
export const ask = {
  event: (event: ModuleEvent): Question => ({ subject: 'event', details: { event: detailsOf(event) } }),
  remoteInvite: (event: ModuleEvent): Question => ({ subject: 'remote_invite', details: { event: detailsOf(event) } }),
  invite: (inviter: string, invitee: string, roomId: string): Question => ({
    subject: 'invite',
    details: { inviter, invitee, room_id: roomId },
  }),
  threepidInvite: (inviter: string, medium: string, address: string, roomId: string): Question => ({
    subject: 'threepid_invite',
    details: { inviter, medium, address, room_id: roomId },
  }),
  join: (userId: string, roomId: string, isInvited: boolean): Question => ({
    subject: 'join',
    details: { user_id: userId, room_id: roomId, is_invited: isInvited },
    callback: { user: userId, room: roomId, is_invited: isInvited },
  }),
  room: (userId: string): Question => ({ subject: 'room', details: { user_id: userId } }),
  alias: (userId: string, alias: string): Question => ({
    subject: 'alias',
    details: { user_id: userId, room_alias: alias },
  }),
  publish: (userId: string, roomId: string): Question => ({
    subject: 'publish',
    details: { user_id: userId, room_id: roomId },
  }),
  username: ({ userId, displayName = null, avatarUrl = null }: Nullable<UserProfile>, requester: string): Question => ({
    subject: 'username',
    details: {
      user_profile: { user_id: userId, display_name: displayName, avatar_url: avatarUrl },
      requester_id: requester,
    },
  }),
  registration: (
    username: string | undefined,
    email: string | undefined,
    requests: readonly RequestInfo[],
    provider: string | undefined,
  ): Question => ({ subject: 'registration', details: { username, email, requests, auth_provider_id: provider } }),
  login: (
    userId: string,
    deviceId: string | undefined,
    deviceName: string | undefined,
    requests: readonly RequestInfo[],
    provider: string | undefined,
  ): Question => ({
    subject: 'login',
    details: { user_id: userId, device_id: deviceId, device_name: deviceName, requests, auth_provider_id: provider },
    callback: {
      ...{ user_id: userId, device_id: deviceId ?? null, initial_display_name: deviceName ?? null },
      request_info: requests.map(({ userAgent, ip }) => [userAgent ?? null, ip]),
      auth_provider_id: provider ?? null,
    },
  }),
};

type Nullable<T> = { readonly [K in keyof T]?: T[K] | null };
