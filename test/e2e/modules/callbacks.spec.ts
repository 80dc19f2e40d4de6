import { createHmac } from 'node:crypto';
import {
  type CallbackInfo,
  type CallbackName,
  callbackTable,
  Codes,
  type MediaFile,
  NOT_SPAM,
} from '@rookery/module-api';
import { Database, defineBackgroundUpdate } from '@rookery/database';
import { eventually, type TestUser } from '@rookery/testing';
import { registerWithSecret } from '../../support/shared-secret.js';
import { operatorOf } from '../admin/operator-world.js';
import { type Fired, probe, type ProbeServer, startProbe } from './probe-server.js';

/** Calls that need what no test has here; who shows them. */
const shownElsewhere = new Set<CallbackName>([
  // Needs an identity server: libs/rooms.
  'userMaySend3pidInvite',
  // Needs another server: libs/rooms.
  'federatedUserMayInvite',
  // Needs another server: test/e2e/federation.
  'shouldDropFederatedEvent',
  'onEventDeliveredOverFederation',
]);

const limited = { per_second: 0.001, burst_count: 1 };
const wide = { per_second: 100_000, burst_count: 100_000 };

describe.each(['sqlite', 'postgres'] as const)('callbacks fire (%s)', (kind) => {
  let server: ProbeServer;
  let ann: TestUser;
  let ben: TestUser;
  let roomId: string;
  const seen = new Set<CallbackName>();
  const rows: string[] = [];

  beforeAll(async () => {
    const update = defineBackgroundUpdate({
      name: 'test_update',
      run: async ({ batchSize }) => {
        rows.push(`batch of ${batchSize}`);
        return { items: batchSize, progress: {}, finished: true };
      },
    });
    server = await startProbe(
      kind,
      {
        rc_invites: { per_room: wide, per_user: wide, per_issuer: limited },
        room_list_publication_rules: [{ action: 'allow' }],
        jwt_config: { enabled: true, secret: 'jwt secret', algorithm: 'HS256' },
        email: { smtp_host: '127.0.0.1', notif_from: 'rookery@example.org' },
      },
      { backgroundUpdates: [update] },
    );
    ann = await server.registerUser('ann');
    ben = await server.registerUser('ben');
    for (const { name } of probe.fired) seen.add(name);
  });
  afterAll(() => server?.stop());
  beforeEach(() => probe.reset());
  afterEach(() => {
    for (const { name } of probe.fired) seen.add(name);
  });

  const calls = (name: CallbackName): Fired[] => probe.fired.filter((one) => one.name === name);
  const last = (name: CallbackName): Fired => {
    const found = calls(name).at(-1);
    if (!found)
      throw new Error(`${name} did not fire; what did: ${[...new Set(probe.fired.map((one) => one.name))].join(', ')}`);
    return found;
  };
  const room = (path: string): string => `/rooms/${encodeURIComponent(roomId)}/${path}`;
  let txn = 0;
  const say = (user: TestUser, body: string): ReturnType<TestUser['request']> =>
    user.request('PUT', room(`send/m.room.message/t${++txn}`), { msgtype: 'm.text', body });

  it('when somebody registers', async () => {
    probe.answers.getUsernameForRegistration = () => 'chosen';
    probe.answers.getDisplaynameForRegistration = () => 'Chosen One';
    const user = await server.registerUser('asked-for');
    expect(user.userId).toBe('@chosen:rookery.test');
    expect(last('getUsernameForRegistration').args[0]).toEqual({ 'm.login.dummy': true });
    expect(last('checkRegistrationForSpam').args[1]).toBe('chosen');
    expect(last('onUserRegistration').args).toEqual([user.userId]);
    expect(last('onUserLogin').args[0]).toBe(user.userId);
    const profile = await server.request('GET', `/profile/${encodeURIComponent(user.userId)}/displayname`);
    expect(profile.body).toEqual({ displayname: 'Chosen One' });
    probe.answers = { checkRegistrationForSpam: () => 'deny' };
    await expect(server.registerUser('spammer')).rejects.toThrow('M_FORBIDDEN');
  });

  it('when an account is made by hand, or by a login', async () => {
    const { userId } = await registerWithSecret(server, 'byhand');
    expect(last('onUserRegistration').args).toEqual([userId]);
    expect(last('onUserLogin').args[0]).toBe(userId);
    const signed = [{ alg: 'HS256' }, { sub: 'brought' }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
      .join('.');
    const token = `${signed}.${createHmac('sha256', 'jwt secret').update(signed).digest('base64url')}`;
    const login = async (): Promise<number> =>
      (await server.request('POST', '/login', { type: 'org.matrix.login.jwt', token })).status;
    probe.answers = { checkRegistrationForSpam: () => 'deny' };
    expect(await login()).toBe(403);
    expect(last('checkRegistrationForSpam').args[1]).toBe('brought');
    expect((await server.request('GET', '/profile/@brought:rookery.test')).status).toBe(404);
    probe.answers = {};
    expect(await login()).toBe(200);
    expect(last('onUserLogin').args[0]).toBe('@brought:rookery.test');
  });

  it('when somebody logs in, by password, by other means, by address', async () => {
    const login = (body: object): Promise<{ status: number; body: Record<string, unknown> }> =>
      server.request('POST', '/login', body);
    const identifier = { type: 'm.id.user', user: 'ann' };
    const password = { type: 'm.login.password', identifier, password: 'password of ann', device_id: 'D1' };
    expect((await login(password)).status).toBe(200);
    expect(last('checkLoginForSpam')).toMatchObject({
      args: [ann.userId, 'D1', undefined, [{ ip: '127.0.0.1' }], undefined],
      context: { source: 'client', ip: '127.0.0.1' },
    });
    probe.answers = { checkLoginForSpam: () => Codes.USER_LOCKED };
    expect(await login(password)).toMatchObject({ status: 403, body: { errcode: 'M_USER_LOCKED' } });

    let told: unknown;
    probe.answers = {
      authCheckers: (_name: string, _type: string, { answer }: { answer: string }) =>
        answer === '42'
          ? { userId: '@riddler:rookery.test', onLogin: (response: unknown) => void (told = response) }
          : undefined,
    };
    const riddle = { type: 'org.example.riddle', identifier: { type: 'm.id.user', user: 'riddler' } };
    expect((await login({ ...riddle, answer: '41' })).status).toBe(403);
    expect(await login({ ...riddle, answer: '42' })).toMatchObject({
      status: 200,
      body: { user_id: '@riddler:rookery.test' },
    });
    expect(last('authCheckers').args.slice(1)).toEqual(['org.example.riddle', { answer: '42' }]);
    expect(told).toMatchObject({ user_id: '@riddler:rookery.test' });

    probe.answers = { check3pidAuth: () => ({ userId: ann.userId }) };
    const byAddress = {
      ...{ type: 'm.login.password', password: 'secret' },
      identifier: { type: 'm.id.thirdparty', medium: 'email', address: 'ann@example.org' },
    };
    expect(await login(byAddress)).toMatchObject({ status: 200, body: { user_id: ann.userId } });
    expect(last('check3pidAuth').args).toEqual(['email', 'ann@example.org', 'secret']);
  });

  it('when a session is used and ended', async () => {
    const { body } = await server.request<Record<string, string>>('POST', '/login', {
      ...{ type: 'm.login.password', password: 'password of ben', identifier: { type: 'm.id.user', user: 'ben' } },
    });
    const token = body['access_token'];
    probe.answers.isUserExpired = () => true;
    expect(await server.request('GET', '/account/whoami', undefined, token)).toMatchObject({
      status: 403,
      body: { errcode: 'ORG_MATRIX_EXPIRED_ACCOUNT' },
    });
    expect(last('isUserExpired').args).toEqual([ben.userId]);
    expect((await server.request('POST', '/logout', {}, token)).status).toBe(200);
    expect(last('onLoggedOut').args).toEqual([ben.userId, body['device_id'], token]);
  });

  it('when a mail is to renew an account', async () => {
    await ann.request('POST', '/_matrix/client/unstable/account_validity/send_mail', {});
    expect(last('onLegacySendMail').args).toEqual([ann.userId]);
    probe.answers.onLegacyRenew = () => ({ valid: true, stale: false, expirationTs: 1e12 });
    const renewed = await server.request('GET', '/_matrix/client/unstable/account_validity/renew?token=abc');
    expect(renewed.status).toBe(200);
    expect(last('onLegacyRenew').args).toEqual(['abc']);
  });

  it('when an administrator renews an account', async () => {
    probe.answers.onLegacyAdminRequest = () => 1_234;
    const body = { user_id: ann.userId, expiration_ts: 99, more: true };
    const operator = await operatorOf(server, 'renewer');
    expect(await operator.call('POST', '/v1/account_validity/validity', body)).toMatchObject({
      status: 200,
      body: { expiration_ts: 1_234 },
    });
    expect(last('onLegacyAdminRequest').args).toEqual([body]);
  });

  it('when addresses come and go', async () => {
    const { result } = await server.call('registerUser', 'addressee', { emails: ['a@example.org'] });
    const userId = result as string;
    // Modules and administrators vouch for what they give.
    expect(calls('is3pidAllowed')).toEqual([]);
    expect(last('onThreepidBind').args).toEqual([userId, 'email', 'a@example.org']);
    expect(last('onAddUserThirdPartyIdentifier').args).toEqual([userId, 'email', 'a@example.org']);
    const device = (await server.call('registerDevice', userId)).result as { accessToken: string };
    const gone = { medium: 'email', address: 'a@example.org' };
    expect((await server.request('POST', '/account/3pid/delete', gone, device.accessToken)).status).toBe(200);
    expect(last('onRemoveUserThirdPartyIdentifier').args).toEqual([userId, 'email', 'a@example.org']);
    probe.answers = { is3pidAllowed: () => false };
    const wanted = { client_secret: 'secret', email: 'b@example.org', send_attempt: 1 };
    const asked = await ann.request('POST', '/account/3pid/email/requestToken', wanted);
    expect(asked).toMatchObject({ status: 403, body: { errcode: 'M_THREEPID_DENIED' } });
    expect(last('is3pidAllowed').args).toEqual(['email', 'b@example.org', false]);
  });

  it('when a profile, account data or an account change', async () => {
    await ann.request('PUT', `/profile/${encodeURIComponent(ann.userId)}/displayname`, { displayname: 'Ann' });
    expect(last('onProfileUpdate')).toMatchObject({
      args: [ann.userId, { displayName: 'Ann' }, false, false],
      context: { source: 'client', userId: ann.userId, deviceId: ann.deviceId },
    });
    await ann.request('PUT', `/user/${encodeURIComponent(ann.userId)}/account_data/org.example`, { a: 1 });
    expect(last('onAccountDataUpdated').args).toEqual([ann.userId, undefined, 'org.example', { a: 1 }]);
    await server.call('registerUser', 'leaver');
    probe.answers.checkCanDeactivateUser = () => false;
    expect(await server.call('deactivateUser', '@leaver:rookery.test')).toMatchObject({ status: 403 });
    probe.answers = {};
    await server.call('deactivateUser', '@leaver:rookery.test');
    expect(last('checkCanDeactivateUser').args).toEqual(['@leaver:rookery.test', true]);
    expect(last('onUserDeactivationStatusChanged').args).toEqual(['@leaver:rookery.test', true, true]);
  });

  it('before an administrator changes anything of an account that may not be closed', async () => {
    const operator = await operatorOf(server, 'closer');
    await server.call('registerUser', 'stayer');
    probe.answers.checkCanDeactivateUser = () => false;
    for (const name of ['stayer', 'never-there']) {
      const change = { displayname: 'Half done', deactivated: true };
      expect((await operator.call('PUT', `/v2/users/@${name}:rookery.test`, change)).status).toBe(403);
      expect(calls('checkCanDeactivateUser').at(-1)?.args).toEqual([`@${name}:rookery.test`, true]);
    }
    expect(await operator.ok('GET', '/v2/users/@stayer:rookery.test')).toMatchObject({ displayname: 'stayer' });
    expect((await operator.call('GET', '/v2/users/@never-there:rookery.test')).status).toBe(404);
  });

  it('when a room is made', async () => {
    probe.answers.onCreateRoom = (_requester: unknown, content: object) => ({ ...content, topic: 'from a module' });
    const body = { name: 'R', room_alias_name: 'callbacks', visibility: 'public', preset: 'public_chat' };
    const made = await ann.request<{ room_id: string }>('POST', '/createRoom', body);
    expect(made.status).toBe(200);
    roomId = made.body.room_id;
    expect(last('onCreateRoom').args[0]).toMatchObject({ userId: ann.userId, isAdmin: false });
    expect(last('userMayCreateRoom')).toMatchObject({
      args: [ann.userId, { topic: 'from a module' }],
      context: { duringRoomCreation: true },
    });
    expect(last('userMayCreateRoomAlias').args).toEqual([ann.userId, '#callbacks:rookery.test']);
    expect(last('userMayPublishRoom').args[0]).toBe(ann.userId);
    expect(calls('checkEventForSpam').every(({ context }) => context.duringRoomCreation)).toBe(true);
    const topic = await ann.request('GET', room('state/m.room.topic'));
    expect(topic.body['topic']).toBe('from a module');
  });

  it('when an alias is bound, by an administrator as well', async () => {
    const { user } = await operatorOf(server, 'binder');
    probe.answers.userMayCreateRoomAlias = () => Codes.FORBIDDEN;
    for (const who of [ann, user]) {
      const bound = await who.request('PUT', '/directory/room/%23bound:rookery.test', { room_id: roomId });
      expect(bound.status).toBe(403);
      expect(last('userMayCreateRoomAlias').args).toEqual([who.userId, '#bound:rookery.test']);
    }
  });

  it('when a room that is to be public may not be in the directory: it is made, unlisted', async () => {
    probe.answers.userMayPublishRoom = () => Codes.FORBIDDEN;
    const made = await ann.request<{ room_id: string }>('POST', '/createRoom', { visibility: 'public' });
    expect(made.status).toBe(200);
    const listing = `/directory/list/room/${made.body.room_id}`;
    expect((await ann.request('GET', listing)).body).toEqual({ visibility: 'private' });
    expect((await ann.request('PUT', listing, { visibility: 'public' })).status).toBe(403);
    probe.answers = {};
    expect((await ann.request('PUT', listing, { visibility: 'public' })).status).toBe(200);
  });

  it('when somebody is invited and joins', async () => {
    const invite = (userId: string): ReturnType<TestUser['request']> =>
      ann.request('POST', room('invite'), { user_id: userId });
    probe.answers.userMayInvite = () => Codes.FORBIDDEN;
    expect((await invite(ben.userId)).status).toBe(403);
    expect(last('userMayInvite').args).toEqual([ann.userId, ben.userId, roomId]);
    // The settings allow one invite; the module lifts that.
    probe.answers = { getRatelimitOverrideForUser: () => ({ perSecond: 0, burstCount: 0 }) };
    for (const name of ['ben', 'chosen', 'riddler']) expect((await invite(`@${name}:rookery.test`)).status).toBe(200);
    expect(new Set(calls('getRatelimitOverrideForUser').map(({ args }) => args[1]))).toEqual(
      new Set(['rc_invites.per_room', 'rc_invites.per_user', 'rc_invites.per_issuer']),
    );
    expect(last('getRatelimitOverrideForUser')).toMatchObject({
      args: [ann.userId, expect.any(String)],
      context: { source: 'client', userId: ann.userId },
    });
    probe.answers = { userMayJoinRoom: () => Codes.FORBIDDEN };
    expect((await ben.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).status).toBe(403);
    expect(last('userMayJoinRoom').args).toEqual([ben.userId, roomId, true]);
    probe.answers = {};
    expect((await ben.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).status).toBe(200);
    probe.answers = { checkThreepidCanBeInvited: () => false };
    const byAddress = { id_server: 'id.example', id_access_token: 't', medium: 'email', address: 'x@example.org' };
    expect((await ann.request('POST', room('invite'), byAddress)).status).toBe(403);
    expect(last('checkThreepidCanBeInvited').args.slice(0, 2)).toEqual(['email', 'x@example.org']);
  });

  it('when an event is sent, stored and shown', async () => {
    probe.answers = {
      checkEventAllowed: (event: { content: Record<string, unknown> }) => ({
        allowed: true,
        replacement: { content: { ...event.content, body: 'replaced' } },
      }),
      addFieldToUnsigned: () => ({ 'org.example.mark': 7 }),
    };
    expect((await say(ben, 'original')).status).toBe(200);
    expect(last('checkEventForSpam')).toMatchObject({
      args: [{ content: { body: 'replaced' }, sender: ben.userId }],
      context: { source: 'client', userId: ben.userId },
    });
    const messages = await ben.request<{ chunk: { content: object; unsigned: object }[] }>(
      'GET',
      room('messages?dir=b&limit=1'),
    );
    expect(messages.body.chunk[0]).toMatchObject({
      content: { body: 'replaced' },
      unsigned: { 'org.example.mark': 7 },
    });
    // Also within others.
    const original = (await ben.request<{ event_id: string }>('PUT', room('send/m.room.message/edited'), { body: 'a' }))
      .body.event_id;
    await ben.request('PUT', room('send/m.room.message/edit'), {
      ...{ body: 'b', 'm.new_content': { body: 'b' } },
      'm.relates_to': { rel_type: 'm.replace', event_id: original },
    });
    const edited = await ben.request('GET', room(`event/${encodeURIComponent(original)}`));
    const mark = { 'org.example.mark': 7 };
    expect(edited.body).toMatchObject({
      unsigned: { ...mark, 'm.relations': { 'm.replace': { unsigned: mark } } },
    });
    await ben.request('PUT', room(`redact/${encodeURIComponent(original)}/r`), {});
    const redacted = await ben.request('GET', room(`event/${encodeURIComponent(original)}`));
    expect(redacted.body).toMatchObject({ unsigned: { ...mark, redacted_because: { unsigned: mark } } });
    const told = await eventually(() =>
      calls('onNewEvent').find(
        ({ args: [event] }) => (event as { content: { body?: string } }).content.body === 'replaced',
      ),
    );
    expect(told.context.source).toBe('server');
    probe.answers = { checkEventForSpam: () => ({ errcode: 'ORG.EXAMPLE', message: 'no', status: 418 }) };
    expect(await say(ben, 'x')).toMatchObject({ status: 418, body: { errcode: 'ORG.EXAMPLE', error: 'no' } });
    probe.answers = { userMaySendStateEvent: () => Codes.FORBIDDEN };
    expect((await ann.request('PUT', room('state/m.room.name/'), { name: 'N' })).status).toBe(403);
    expect(last('userMaySendStateEvent').args).toEqual([ann.userId, roomId, 'm.room.name', '', { name: 'N' }]);
    const ban = { membership: 'ban' };
    const member = room(`state/m.room.member/${ben.userId}`);
    expect((await ann.request('PUT', member, ban)).status).toBe(403);
    expect(last('userMaySendStateEvent').args).toEqual([ann.userId, roomId, 'm.room.member', ben.userId, ban]);
  });

  it('when the directory changes and a room is upgraded', async () => {
    const list = `/directory/list/room/${encodeURIComponent(roomId)}`;
    probe.answers.checkVisibilityCanBeModified = () => false;
    expect((await ann.request('PUT', list, { visibility: 'private' })).status).toBe(403);
    expect(last('checkVisibilityCanBeModified').args[0]).toBe(roomId);
    expect(last('checkVisibilityCanBeModified').args[2]).toBe('private');
    // Nobody is parted where a module does not let the room be closed.
    probe.answers = { checkEventAllowed: ({ type }: { type: string }) => type !== 'm.room.tombstone' };
    expect((await ann.request('POST', room('upgrade'), { new_version: '11' })).status).toBe(403);
    expect((await say(ben, 'still here')).status).toBe(200);
    probe.answers = {};
    const upgraded = await ann.request<{ replacement_room: string }>('POST', room('upgrade'), { new_version: '11' });
    expect(upgraded.status).toBe(200);
    const told = await eventually(() => calls('onRoomUpgraded').at(-1));
    expect(told.args).toEqual([roomId, upgraded.body.replacement_room, ann.userId]);
  });

  it('when somebody looks for users', async () => {
    const find = async (): Promise<unknown> =>
      (await ann.request('POST', '/user_directory/search', { search_term: 'ben' })).body['results'];
    const found = { user_id: ben.userId, display_name: 'ben', avatar_url: null };
    expect(await find()).toEqual([found]);
    expect(last('checkUsernameForSpam').args).toEqual([
      { userId: ben.userId, displayName: 'ben', avatarUrl: undefined },
      ann.userId,
    ]);
    probe.answers = { checkUsernameForSpam: () => true };
    expect(await find()).toEqual([]);
    // Who is hidden takes nobody's place.
    const second = await server.registerUser('benny');
    probe.answers = {};
    expect((await second.request('POST', '/createRoom', { preset: 'public_chat' })).status).toBe(200);
    const search = { search_term: 'ben', limit: 1 };
    for (const [hidden, shown] of [[ben, second] as const, [second, ben] as const]) {
      probe.answers = { checkUsernameForSpam: (user) => (user as { userId: string }).userId === hidden.userId };
      const { body } = await ann.request<{ results: { user_id: string }[] }>(
        ...(['POST', '/user_directory/search', search] as const),
      );
      expect(body.results.map((user) => user.user_id)).toEqual([shown.userId]);
    }
  });

  it('when presence is told', async () => {
    probe.answers = {
      getUsersForStates: () => new Map(),
      getInterestedUsers: () => new Set([ben.userId]),
    };
    const status = `/presence/${encodeURIComponent(ann.userId)}/status`;
    expect((await ann.request('PUT', status, { presence: 'unavailable', status_msg: 'out' })).status).toBe(200);
    // Others, whose states change by themselves, may be told of before and after.
    await eventually(() =>
      calls('getUsersForStates').some(({ args: [states] }) =>
        (states as { userId: string; state: string }[]).some(
          ({ userId, state }) => userId === ann.userId && state === 'unavailable',
        ),
      ),
    );
    expect((await ann.request('GET', '/sync')).status).toBe(200);
    expect(last('getInterestedUsers').args).toEqual([ann.userId]);
  });

  it('when somebody uploads', async () => {
    const upload = async (content: string): Promise<{ status: number; body: Record<string, unknown> }> => {
      const response = await fetch(`${server.baseUrl}/_matrix/media/v3/upload?filename=a.txt`, {
        method: 'POST',
        headers: { authorization: `Bearer ${ann.accessToken}`, 'content-type': 'text/plain' },
        body: content,
      });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    };
    let read = '';
    probe.answers.checkMediaFileForSpam = async (file: MediaFile) => {
      for await (const piece of file.stream()) read += Buffer.from(piece).toString();
      return read.includes('casino') ? Codes.FORBIDDEN : NOT_SPAM;
    };
    const stored = await upload('a picture');
    expect(stored.status).toBe(200);
    expect(read).toBe('a picture');
    const fileId = String(stored.body['content_uri']).split('/').at(-1);
    const info = { serverName: undefined, fileId, urlCache: false };
    expect(last('checkMediaFileForSpam').args).toEqual([
      { sizeBytes: 9, mediaType: 'text/plain', stream: expect.any(Function) as unknown },
      info,
    ]);
    expect(last('isUserAllowedToUploadMediaOfSize').args).toEqual([ann.userId, 9]);
    expect(last('getMediaUploadLimitsForUser').args).toEqual([ann.userId]);
    expect(last('onMediaStored').args).toEqual([info, ann.userId, 9]);
    expect(await upload('a casino')).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(calls('onMediaStored').length).toBe(1);

    probe.answers = { isUserAllowedToUploadMediaOfSize: () => false };
    expect(await upload('x')).toMatchObject({ status: 413, body: { errcode: 'M_TOO_LARGE' } });
    probe.answers = { getMediaUploadLimitsForUser: () => [{ maxBytes: 20, timePeriodMs: 3_600_000 }] };
    expect((await upload('0123456789')).status).toBe(200);
    expect(await upload('0123456789')).toMatchObject({ status: 403, body: { errcode: 'M_USER_LIMIT_EXCEEDED' } });
    expect(last('onMediaUploadLimitExceeded').args).toEqual([
      ann.userId,
      { maxBytes: 20, timePeriodMs: 3_600_000 },
      19,
      10,
    ]);
    const config = (): ReturnType<TestUser['request']> => ann.request('GET', '/_matrix/client/v1/media/config');
    expect((await config()).body).toEqual({ 'm.upload.size': 50 * 1024 ** 2 });
    probe.answers = { getMediaConfigForUser: () => ({ 'm.upload.size': 7 }) };
    expect((await config()).body).toEqual({ 'm.upload.size': 7 });
    expect(last('getMediaConfigForUser').args).toEqual([ann.userId]);
  });

  it('when an administrator deletes a room', async () => {
    const { user, call } = await operatorOf(server);
    const made = await ann.request<{ room_id: string }>('POST', '/createRoom', {});
    const doomed = made.body.room_id;
    for (const path of [`/v1/rooms/${doomed}`, `/v2/rooms/${doomed}`]) {
      probe.answers.checkCanShutdownRoom = () => false;
      expect(await call('DELETE', path, {})).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
      expect(last('checkCanShutdownRoom').args).toEqual([user.userId, doomed]);
    }
    expect((await call('GET', `/v1/rooms/${doomed}`)).status).toBe(200);
    probe.answers = {};
    expect((await call('DELETE', `/v1/rooms/${doomed}`, {})).status).toBe(200);
    expect((await call('GET', `/v1/rooms/${doomed}`)).status).toBe(404);
  });

  it('when an administrator removes the history of a room', async () => {
    const { call } = await operatorOf(server, 'archivist');
    const { body } = await ann.request<{ room_id: string }>('POST', '/createRoom', {});
    const roomId = body.room_id;
    const purge = (): ReturnType<typeof call> =>
      call('POST', `/v1/purge_history/${roomId}`, { purge_up_to_ts: 1_000, delete_local_events: true });
    probe.answers = { checkCanRemoveHistory: () => false };
    expect(await purge()).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(last('checkCanRemoveHistory').args).toEqual([roomId, 'purge']);
    probe.answers = {};
    expect((await purge()).status).not.toBe(403);
  });

  it('when a background update runs', async () => {
    let released = 0;
    probe.answers = {
      onUpdate: () => ({ durationMs: 20, release: () => void released++ }),
      defaultBatchSize: () => 12,
      minBatchSize: () => 3,
    };
    const { answers } = probe;
    await server.server
      .service(Database)
      .write((tx) =>
        tx.run(`INSERT INTO background_updates (update_name, progress_json) VALUES ('test_update', '{}')`),
      );
    await server.restart();
    probe.answers = answers;
    await eventually(() => (rows.length > 0 && released > 0 ? true : undefined));
    expect(rows).toEqual(['batch of 12']);
    expect(released).toBe(1);
    expect(last('onUpdate').args).toEqual(['test_update', 'master', false]);
    expect(last('minBatchSize').args).toEqual(['test_update', 'master']);
  });

  it('all that the table says so', () => {
    const claimed = (Object.entries(callbackTable) as [CallbackName, CallbackInfo][])
      .filter(([name, { fires }]) => fires && !shownElsewhere.has(name))
      .map(([name]) => name);
    // Make a new one fire in a test above.
    expect(claimed.filter((name) => !seen.has(name))).toEqual([]);
  });
});
