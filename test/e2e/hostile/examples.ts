/** What a right request to an endpoint carries; hostile ones are made of it. */
export interface Example {
  readonly body?: unknown;
  readonly query?: Readonly<Record<string, string>>;
}

/** Ids that exist, for bodies and paths. */
export interface Names {
  readonly userId: string;
  readonly otherUserId: string;
  readonly roomId: string;
  readonly eventId: string;
  readonly alias: string;
  readonly deviceId: string;
  readonly password: string;
  /** Of this server. */
  readonly serverName: string;
  readonly filterId: string;
  readonly syncToken: string;
  readonly pageToken: string;
  readonly delayId: string;
  readonly backupVersion: string;
}

const page = (names: Names): Record<string, string> => ({ dir: 'b', from: names.pageToken, limit: '5' });
const filter = {
  event_fields: ['type', 'content.body'],
  event_format: 'client',
  presence: { limit: 5, types: ['*'] },
  account_data: { limit: 5, not_types: ['m.x'] },
  room: {
    rooms: ['!a:b'],
    include_leave: true,
    timeline: { limit: 5, lazy_load_members: true, unread_thread_notifications: true, contains_url: true },
    state: { limit: 5, lazy_load_members: true, include_redundant_members: false, senders: ['@a:b'] },
    ephemeral: { limit: 5, types: ['m.receipt'] },
    account_data: { limit: 5, related_by_rel_types: ['m.thread'] },
  },
};
const emailToken = { client_secret: 'secret', email: 'somebody@example.org', send_attempt: 1 };
const phoneToken = { client_secret: 'secret', country: 'GB', phone_number: '07700900001', send_attempt: 1 };
const session = { client_secret: 'secret', sid: '1', id_server: 'id.invalid', id_access_token: 'abc' };
const member = ({ otherUserId }: Names): Example => ({ body: { user_id: otherUserId, reason: 'because' } });
const signedKeys = (userId: string, deviceId: string): object => ({
  user_id: userId,
  device_id: deviceId,
  algorithms: ['m.olm.v1.curve25519-aes-sha2', 'm.megolm.v1.aes-sha2'],
  keys: { [`ed25519:${deviceId}`]: 'a'.repeat(43), [`curve25519:${deviceId}`]: 'b'.repeat(43) },
  signatures: { [userId]: { [`ed25519:${deviceId}`]: 'c'.repeat(86) } },
});
const keyUpload = ({ userId, deviceId }: Names): Example => ({
  body: {
    device_keys: signedKeys(userId, deviceId),
    one_time_keys: {
      'signed_curve25519:AAAAHQ': { key: 'd'.repeat(43), signatures: { [userId]: { [`ed25519:${deviceId}`]: 'e' } } },
      'curve25519:AAAAAQ': 'f'.repeat(43),
    },
    fallback_keys: { 'signed_curve25519:AAAAGj': { fallback: true, key: 'g'.repeat(43), signatures: {} } },
  },
});
const crossSigningKey = (userId: string, usage: string, key: string): object => ({
  user_id: userId,
  usage: [usage],
  keys: { [`ed25519:${key}`]: key },
  signatures: { [userId]: { 'ed25519:x': 'y' } },
});
const sessionData = {
  first_message_index: 1,
  forwarded_count: 0,
  is_verified: true,
  session_data: { ciphertext: 'x' },
};
const inVersion = ({ backupVersion }: Names): { query: Record<string, string> } => ({
  query: { version: backupVersion },
});
const backup = { algorithm: 'm.megolm_backup.v1.curve25519-aes-sha2', auth_data: { public_key: 'x', signatures: {} } };
const delay = { body: {} };
const password = ({ userId, password: secret }: Names): object => ({
  type: 'm.login.password',
  identifier: { type: 'm.id.user', user: userId },
  password: secret,
});

/** By the name of the route. A route without an entry gets an empty object where it takes a body. */
export const examples: Readonly<Record<string, (names: Names) => Example>> = {
  'POST /login': (names) => ({ body: { ...password(names), device_id: 'D', initial_device_display_name: 'A phone' } }),
  'POST /register': () => ({
    body: {
      auth: { type: 'm.login.dummy', session: 's' },
      username: 'newcomer',
      password: 'a password of length',
      device_id: 'D',
      inhibit_login: true,
      refresh_token: true,
    },
    query: { kind: 'user' },
  }),
  'GET /register/available': () => ({ query: { username: 'somebody' } }),
  'GET /register/m.login.registration_token/validity': () => ({ query: { token: 'abc' } }),
  'POST /refresh': () => ({ body: { refresh_token: 'abc' } }),
  'POST /account/password': (names) => ({
    body: { new_password: names.password, logout_devices: false, auth: password(names) },
  }),
  'POST /account/deactivate': (names) => ({
    body: { auth: { ...password(names), password: 'wrong' }, erase: true, id_server: 'id.invalid' },
  }),
  'POST /account/3pid': () => ({ body: { three_pid_creds: session } }),
  'POST /account/3pid/add': (names) => ({ body: { client_secret: 'secret', sid: '1', auth: password(names) } }),
  'POST /account/3pid/bind': () => ({ body: session }),
  'POST /account/3pid/delete': () => ({ body: { medium: 'email', address: 'a@example.org', id_server: 'id.invalid' } }),
  'POST /account/3pid/unbind': () => ({ body: { medium: 'email', address: 'a@example.org', id_server: 'id.invalid' } }),
  'POST /account/3pid/email/requestToken': () => ({ body: emailToken }),
  'POST /account/3pid/msisdn/requestToken': () => ({ body: phoneToken }),
  'POST /account/password/email/requestToken': () => ({ body: emailToken }),
  'POST /account/password/msisdn/requestToken': () => ({ body: phoneToken }),
  'POST /register/email/requestToken': () => ({ body: emailToken }),
  'POST /register/msisdn/requestToken': () => ({ body: phoneToken }),
  'POST /add_threepid/msisdn/submit_token': () => ({ body: { client_secret: 'secret', sid: '1', token: 't' } }),
  'GET /add_threepid/email/submit_token': () => ({
    query: { client_secret: 'secret', sid: '1', token: 't', next_link: 'https://a.b' },
  }),
  'GET /registration/email/submit_token': () => ({ query: { client_secret: 'secret', sid: '1', token: 't' } }),
  'GET /account_validity/renew': () => ({ query: { token: 't' } }),
  'POST /account_validity/renew': () => ({ body: { token: 't' } }),
  'GET /auth/:stage/fallback/web': () => ({ query: { session: 'x' } }),
  'POST /delete_devices': (names) => ({ body: { devices: ['GONE', 'X'], auth: password(names) } }),
  'DELETE /devices/:deviceId': (names) => ({ body: { auth: password(names) } }),
  'PUT /devices/:deviceId': () => ({ body: { display_name: 'A phone' } }),
  'POST /login/get_token': (names) => ({ body: { auth: password(names) } }),
  'POST /login/token': (names) => ({ body: { auth: password(names) } }),
  'PUT /admin/lock/:userId': () => ({ body: { locked: false } }),
  'PUT /admin/suspend/:userId': () => ({ body: { suspended: false } }),
  'GET /mutual_rooms': ({ otherUserId }) => ({ query: { user_id: otherUserId, from: 'x' } }),
  'GET /uk.half-shot.msc2666/user/mutual_rooms': ({ otherUserId }) => ({ query: { user_id: otherUserId } }),
  'POST /createRoom': ({ otherUserId }) => ({
    body: {
      preset: 'public_chat',
      visibility: 'public',
      name: 'A room',
      topic: 'Words',
      room_alias_name: 'somewhere',
      room_version: '12',
      invite: [otherUserId],
      is_direct: true,
      creation_content: { 'm.federate': true, type: 'm.space', additional_creators: [otherUserId] },
      initial_state: [{ type: 'm.room.guest_access', state_key: '', content: { guest_access: 'can_join' } }],
      power_level_content_override: {
        users_default: 0,
        events: { 'm.x': 50 },
        notifications: { room: 50 },
      },
    },
  }),
  'POST /rooms/:roomId/ban': member,
  'POST /rooms/:roomId/unban': member,
  'POST /rooms/:roomId/kick': member,
  'POST /rooms/:roomId/invite': member,
  'POST /rooms/:roomId/join': () => ({
    body: {
      reason: 'r',
      third_party_signed: { sender: '@a:b', mxid: '@c:d', token: 't', signatures: { b: { 'ed25519:0': 's' } } },
    },
  }),
  'POST /join/:roomIdOrAlias': ({ serverName }) => ({
    body: { reason: 'r', third_party_signed: { sender: '@a:b', mxid: '@c:d', token: 't', signatures: {} } },
    query: { via: serverName },
  }),
  'POST /knock/:roomIdOrAlias': ({ serverName }) => ({ body: { reason: 'r' }, query: { via: serverName } }),
  'POST /rooms/:roomId/leave': () => ({ body: { reason: 'r' } }),
  'POST /rooms/:roomId/upgrade': ({ otherUserId }) => ({
    body: { new_version: '12', additional_creators: [otherUserId] },
  }),
  'POST /rooms/:roomId/report': () => ({ body: { reason: 'r' } }),
  'POST /rooms/:roomId/report/:eventId': () => ({ body: { reason: 'r', score: -100 } }),
  'POST /users/:userId/report': () => ({ body: { reason: 'r' } }),
  'PUT /createRoom/:txnId': () => ({ body: { preset: 'private_chat', name: 'A room' } }),
  'PUT /join/:roomIdOrAlias/:txnId': ({ serverName }) => ({ body: { reason: 'r', x: 1 }, query: { via: serverName } }),
  'PUT /rooms/:roomId/join/:txnId': () => ({ body: { reason: 'r' } }),
  'PUT /rooms/:roomId/invite/:txnId': member,
  'POST /rooms/:roomId/redact/:eventId': () => ({ body: { reason: 'r' } }),
  'POST /rooms/:roomId/send/:eventType': () => ({ body: { msgtype: 'm.text', body: 'Hello' }, query: { ts: '1' } }),
  'PUT /rooms/:roomId/redact/:eventId/:txnId': () => ({ body: { reason: 'r', with_rel_types: ['*'] } }),
  'PUT /rooms/:roomId/send/:eventType/:txnId': ({ eventId, otherUserId }) => ({
    body: {
      msgtype: 'm.text',
      body: 'Hello',
      'm.mentions': { user_ids: [otherUserId], room: true },
      'm.relates_to': {
        rel_type: 'm.thread',
        event_id: eventId,
        key: 'x',
        is_falling_back: true,
        'm.in_reply_to': { event_id: eventId },
      },
      'm.new_content': { msgtype: 'm.text', body: 'Hullo' },
      info: { h: 1, w: 1, size: 1, mimetype: 'image/png' },
    },
    query: { ts: '1700000000000' },
  }),
  'PUT /rooms/:roomId/state/:eventType/:stateKey': ({ otherUserId }) => ({
    body: {
      membership: 'join',
      displayname: 'A',
      avatar_url: 'mxc://a/b',
      join_rule: 'restricted',
      allow: [{ type: 'm.room_membership', room_id: '!a:b' }],
      history_visibility: 'shared',
      guest_access: 'can_join',
      alias: '#somewhere:rookery.test',
      alt_aliases: ['#a:rookery.test'],
      name: 'x',
      topic: 'x',
      users: { [otherUserId]: 1 },
      events: { 'm.x': 1 },
      users_default: 0,
      ban: 50,
      via: ['a'],
      pinned: ['$x'],
      allow_ip_literals: true,
      deny: ['a'],
      algorithm: 'm.megolm.v1.aes-sha2',
      third_party_invite: { display_name: 'x', signed: { mxid: '@a:b', token: 't', signatures: {} } },
    },
    query: { ts: '1700000000000' },
  }),
  'GET /rooms/:roomId/messages': (names) => ({
    query: { ...page(names), to: names.pageToken, filter: JSON.stringify(filter.room.timeline) },
  }),
  'GET /rooms/:roomId/context/:eventId': () => ({
    query: { limit: '5', filter: JSON.stringify(filter.room.timeline) },
  }),
  'GET /rooms/:roomId/members': (names) => ({
    query: { at: names.pageToken, membership: 'join', not_membership: 'leave' },
  }),
  'GET /rooms/:roomId/relations/:eventId': (names) => ({ query: { ...page(names), recurse: 'true' } }),
  'GET /rooms/:roomId/relations/:eventId/:relType/:eventType': (names) => ({
    query: { ...page(names), recurse: 'true' },
  }),
  'GET /rooms/:roomId/threads': (names) => ({ query: { include: 'all', from: names.pageToken, limit: '5' } }),
  'GET /rooms/:roomId/hierarchy': () => ({ query: { from: 'x', limit: '5', max_depth: '2', suggested_only: 'true' } }),
  'GET /rooms/:roomId/timestamp_to_event': () => ({ query: { ts: '1700000000000', dir: 'f' } }),
  'GET /rooms/:roomId/initialSync': () => ({ query: { limit: '5' } }),
  'GET /initialSync': () => ({ query: { limit: '5', archived: 'true' } }),
  'GET /events': (names) => ({ query: { from: names.syncToken, timeout: '0', room_id: names.roomId } }),
  'GET /sync': (names) => ({
    query: {
      since: names.syncToken,
      timeout: '0',
      filter: JSON.stringify(filter),
      full_state: 'true',
      set_presence: 'online',
      use_state_after: 'true',
    },
  }),
  'POST /sync': ({ roomId }) => ({
    body: {
      conn_id: 'main',
      txn_id: 't',
      lists: {
        all: {
          ranges: [[0, 9]],
          timeline_limit: 5,
          required_state: [
            ['m.room.member', '$LAZY'],
            ['*', '*'],
          ],
          filters: {
            is_dm: false,
            spaces: [roomId],
            room_types: [null, 'm.space'],
            not_room_types: ['x'],
            is_encrypted: true,
            is_invite: false,
            tags: ['m.favourite'],
          },
        },
      },
      room_subscriptions: { [roomId]: { timeline_limit: 5, required_state: [['*', '']] } },
      extensions: {
        to_device: { enabled: true, since: '1', limit: 5 },
        e2ee: { enabled: true },
        account_data: { enabled: true, lists: ['all'], rooms: [roomId] },
        receipts: { enabled: true, lists: ['*'] },
        typing: { enabled: true },
      },
    },
    query: { pos: 'x', timeout: '0', set_presence: 'online' },
  }),
  'POST /rooms/:roomId/read_markers': ({ eventId }) => ({
    body: { 'm.fully_read': eventId, 'm.read': eventId, 'm.read.private': eventId },
  }),
  'POST /rooms/:roomId/receipt/:receiptType/:eventId': () => ({ body: { thread_id: 'main' } }),
  'PUT /rooms/:roomId/typing/:userId': () => ({ body: { typing: true, timeout: 1000 } }),
  'PUT /presence/:userId/status': () => ({ body: { presence: 'online', status_msg: 'Here' } }),
  'PUT /profile/:userId/:field': () => ({
    body: { displayname: 'Alice', avatar_url: 'mxc://a/b', 'm.tz': 'Europe/London', custom: {} },
  }),
  'POST /publicRooms': () => ({
    body: {
      limit: 5,
      since: 'x',
      filter: { generic_search_term: 'a', room_types: [null, 'm.space'] },
      include_all_networks: false,
      third_party_instance_id: 'x',
    },
    query: { server: 'rookery.test' },
  }),
  'GET /publicRooms': () => ({ query: { limit: '5', since: 'x', server: 'rookery.test' } }),
  'PUT /directory/room/:roomAlias': ({ roomId }) => ({ body: { room_id: roomId } }),
  'PUT /directory/list/room/:roomId': () => ({ body: { visibility: 'public' } }),
  'PUT /directory/list/appservice/:networkId/:roomId': () => ({ body: { visibility: 'public' } }),
  'GET /thirdparty/user': () => ({ query: { userid: '@irc_bob:rookery.test' } }),
  'GET /thirdparty/location': () => ({ query: { alias: '#irc_chan:rookery.test' } }),
  'GET /thirdparty/user/:protocol': () => ({ query: { nick: 'bob' } }),
  'GET /thirdparty/location/:protocol': () => ({ query: { channel: '#chan' } }),
  'POST /appservice/:appserviceId/ping': () => ({ body: { transaction_id: 'x' } }),
  'POST /user_directory/search': () => ({ body: { search_term: 'alice', limit: 5 } }),
  'POST /search': ({ roomId }) => ({
    body: {
      search_categories: {
        room_events: {
          search_term: 'hello',
          keys: ['content.body'],
          order_by: 'recent',
          filter: { rooms: [roomId], limit: 5 },
          event_context: { before_limit: 1, after_limit: 1, include_profile: true },
          include_state: true,
          groupings: { group_by: [{ key: 'room_id' }] },
        },
      },
    },
    query: { next_batch: 'x' },
  }),
  'PUT /user/:userId/account_data/:type': ({ roomId, otherUserId }) => ({
    body: { ignored_users: { [otherUserId]: {} }, [otherUserId]: [roomId], default_action: 'block' },
  }),
  'PUT /user/:userId/rooms/:roomId/account_data/:type': () => ({ body: { tags: { 'm.favourite': { order: 0.5 } } } }),
  'PUT /user/:userId/rooms/:roomId/tags/:tag': () => ({ body: { order: 0.5 } }),
  'POST /user/:userId/filter': () => ({ body: filter }),
  'PUT /pushrules/:scope/:kind/:ruleId': () => ({
    body: {
      actions: ['notify', { set_tweak: 'sound', value: 'default' }],
      conditions: [
        { kind: 'event_match', key: 'content.body', pattern: 'x*' },
        { kind: 'room_member_count', is: '>2' },
        { kind: 'event_property_is', key: 'a', value: 1 },
      ],
      pattern: 'cake*',
    },
    query: { before: 'x', after: 'y' },
  }),
  'PUT /pushrules/:scope/:kind/:ruleId/actions': () => ({ body: { actions: ['notify'] } }),
  'PUT /pushrules/:scope/:kind/:ruleId/enabled': () => ({ body: { enabled: true } }),
  'POST /pushers/set': () => ({
    body: {
      kind: 'http',
      app_id: 'a',
      app_display_name: 'A',
      device_display_name: 'B',
      pushkey: 'k',
      lang: 'en',
      profile_tag: 'x',
      append: true,
      data: { url: 'https://push.invalid/_matrix/push/v1/notify', format: 'event_id_only' },
    },
  }),
  'GET /pushers': () => ({}),
  'GET /notifications': () => ({ query: { from: '1', limit: '5', only: 'highlight' } }),
  'POST /keys/upload': keyUpload,
  'POST /keys/upload/:deviceId': keyUpload,
  'POST /keys/query': ({ userId, deviceId }) => ({
    body: { timeout: 1000, device_keys: { [userId]: [deviceId], '@a:127.0.0.1:1': [] } },
  }),
  'POST /keys/claim': ({ otherUserId }) => ({
    body: {
      timeout: 1000,
      one_time_keys: { [otherUserId]: { D: 'signed_curve25519' }, '@a:127.0.0.1:1': { D: 'curve25519' } },
    },
  }),
  'GET /keys/changes': ({ syncToken }) => ({ query: { from: syncToken, to: syncToken } }),
  'POST /keys/device_signing/upload': (names) => ({
    body: {
      master_key: crossSigningKey(names.userId, 'master', 'm'.repeat(43)),
      self_signing_key: crossSigningKey(names.userId, 'self_signing', 's'.repeat(43)),
      user_signing_key: crossSigningKey(names.userId, 'user_signing', 'u'.repeat(43)),
      auth: password(names),
    },
  }),
  'POST /keys/signatures/upload': ({ userId, deviceId }) => ({
    body: { [userId]: { [deviceId]: signedKeys(userId, deviceId) } },
  }),
  'PUT /sendToDevice/:eventType/:txnId': ({ otherUserId, deviceId }) => ({
    body: { messages: { [otherUserId]: { '*': { a: 1 }, [deviceId]: { b: {} } } } },
  }),
  'POST /room_keys/version': () => ({ body: backup }),
  'PUT /room_keys/version/:version': ({ backupVersion }) => ({ body: { ...backup, version: backupVersion } }),
  'PUT /room_keys/keys': (names) => ({
    body: { rooms: { [names.roomId]: { sessions: { s: sessionData } } } },
    ...inVersion(names),
  }),
  'PUT /room_keys/keys/:roomId': (names) => ({ body: { sessions: { s: sessionData } }, ...inVersion(names) }),
  'PUT /room_keys/keys/:roomId/:sessionId': (names) => ({ body: sessionData, ...inVersion(names) }),
  'GET /room_keys/keys': inVersion,
  'GET /room_keys/keys/:roomId': inVersion,
  'GET /room_keys/keys/:roomId/:sessionId': inVersion,
  'DELETE /room_keys/keys': inVersion,
  'DELETE /room_keys/keys/:roomId': inVersion,
  'DELETE /room_keys/keys/:roomId/:sessionId': inVersion,
  'PUT /dehydrated_device': ({ userId }) => ({
    body: {
      device_id: 'DEHYDRATED',
      initial_device_display_name: 'x',
      device_data: { algorithm: 'x' },
      device_keys: signedKeys(userId, 'DEHYDRATED'),
      one_time_keys: {},
      fallback_keys: {},
    },
  }),
  'POST /dehydrated_device/:deviceId/events': () => ({ body: { next_batch: 'x' }, query: { limit: '5' } }),
  'GET /dehydrated_device/:deviceId/events': () => ({ query: { next_batch: 'x', limit: '5' } }),
  'POST /delayed_events/:delayId': () => ({ body: { action: 'restart' } }),
  'POST /delayed_events/:delayId/cancel': () => delay,
  'POST /delayed_events/:delayId/restart': () => delay,
  'POST /delayed_events/:delayId/send': () => delay,
  'GET /delayed_events': () => ({ query: { status: 'scheduled', delay_id: 'x', from: 'x' } }),
};
