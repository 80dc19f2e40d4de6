import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { registerWithSecret } from '../../support/shared-secret.js';

describe.each(['sqlite', 'postgres'] as const)('administrators of the server (%s)', (database) => {
  let homeserver: TestHomeserver;
  let root: TestUser;
  let alice: TestUser;
  const admin = (method: string, path: string, body?: unknown) => root.request(method, path, body);

  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database, fetch: validatedFetch });
    root = await registerWithSecret(homeserver, 'root', true);
    alice = await homeserver.registerUser('alice');
    await registerWithSecret(homeserver, 'other', true);
    const gone = await homeserver.registerUser('gone');
    await admin('POST', `/_synapse/admin/v1/deactivate/${gone.userId}`, {});
  });
  afterAll(() => homeserver?.stop());

  it('lock an account and unlock it', async () => {
    const path = `/_matrix/client/v1/admin/lock/${alice.userId}`;
    expect(await admin('GET', path)).toMatchObject({ status: 200, body: { locked: false } });
    expect(await admin('PUT', path, { locked: true })).toMatchObject({ status: 200, body: { locked: true } });
    expect(await alice.request('GET', '/account/whoami')).toMatchObject({
      status: 401,
      body: { errcode: 'M_USER_LOCKED', soft_logout: true },
    });
    expect(await admin('PUT', path, { locked: false })).toMatchObject({ status: 200 });
    expect((await alice.request('GET', '/account/whoami')).status).toBe(200);
  });

  it('suspend an account', async () => {
    const path = `/_matrix/client/v1/admin/suspend/${alice.userId}`;
    const room = await alice.request('POST', '/createRoom', {});
    expect(await admin('PUT', path, { suspended: true })).toMatchObject({ status: 200, body: { suspended: true } });
    const sent = await alice.request('PUT', `/rooms/${String(room.body['room_id'])}/send/m.room.message/1`, {
      msgtype: 'm.text',
      body: 'x',
    });
    expect(sent).toMatchObject({ status: 403, body: { errcode: 'M_USER_SUSPENDED' } });
    expect((await alice.request('GET', '/sync')).status).toBe(200);
    expect(await admin('PUT', path, { suspended: false })).toMatchObject({ status: 200 });
  });

  it('suspend a moderator, who then takes back no more than their own words, and may go', async () => {
    const bob = await homeserver.registerUser('bob');
    const made = await alice.request<{ room_id: string }>('POST', '/createRoom', {
      preset: 'public_chat',
      power_level_content_override: { users: { [bob.userId]: 50 } },
    });
    const room = `/rooms/${made.body.room_id}`;
    await bob.request('POST', `${room}/join`, {});
    const say = async (user: TestUser, txnId: string): Promise<string> =>
      (await user.request<{ event_id: string }>('PUT', `${room}/send/m.room.message/${txnId}`, { body: 'x' })).body
        .event_id;
    const theirs = await say(alice, 'theirs');
    const own = [await say(bob, 'first'), await say(bob, 'second'), await say(bob, 'third')] as const;
    const path = `/_matrix/client/v1/admin/suspend/${bob.userId}`;
    await admin('PUT', path, { suspended: true });
    const asked = async (method: string, what: string, body: object): Promise<string> => {
      const answer = await bob.request<{ errcode?: string }>(method, `${room}/${what}`, body);
      return [answer.status, answer.body.errcode].join(' ').trim();
    };
    const refused = '403 M_USER_SUSPENDED';
    expect(await asked('PUT', `redact/${theirs}/1`, {})).toBe(refused);
    expect(await asked('POST', `redact/${theirs}`, {})).toBe(refused);
    expect(await asked('PUT', 'redact/$unknown/2', {})).toBe(refused);
    expect(await asked('PUT', 'send/m.room.redaction/3', { redacts: theirs })).toBe(refused);
    expect(await asked('PUT', 'send/m.room.redaction/4', {})).toBe(refused);
    expect(await asked('PUT', `redact/${own[0]}/5`, {})).toBe('200');
    expect(await asked('POST', `redact/${own[1]}`, {})).toBe('200');
    expect(await asked('PUT', 'send/m.room.redaction/6', { redacts: own[2] })).toBe('200');
    const membership = (membership: string, user: TestUser): Promise<string> =>
      asked('PUT', `state/m.room.member/${user.userId}`, { membership });
    expect(await asked('PUT', 'state/m.room.topic', { topic: 'x' })).toBe(refused);
    expect(await membership('leave', alice)).toBe(refused);
    expect(await membership('join', bob)).toBe(refused);
    expect(await membership('leave', bob)).toBe('200');
    const shown = await alice.request<{ content: object }>('GET', `${room}/event/${theirs}`);
    expect(shown.body.content).toEqual({ body: 'x' });
    await admin('PUT', path, { suspended: false });
  });

  it('see from where somebody was active, and so does the user', async () => {
    await alice.request('GET', '/account/whoami');
    await eventually(async () => {
      const seen = await admin('GET', `/admin/whois/${alice.userId}`);
      expect(seen).toMatchObject({ status: 200, body: { user_id: alice.userId } });
      return JSON.stringify(seen.body).includes('127.0.0.1');
    });
    expect((await alice.request('GET', `/admin/whois/${alice.userId}`)).status).toBe(200);
    // Where tools from before the first release look.
    for (const prefix of ['api/v1', 'unstable']) {
      const old = await admin('GET', `/_matrix/client/${prefix}/admin/whois/${alice.userId}`);
      expect([prefix, old]).toMatchObject([prefix, { status: 200, body: { user_id: alice.userId } }]);
    }
  });

  it.each([
    ['GET', 'lock', '@nobody:rookery.test', undefined, 404],
    ['GET', 'lock', '@alice:elsewhere.test', undefined, 400],
    ['PUT', 'lock', '@root:rookery.test', { locked: true }, 403],
    ['GET', 'lock', '@root:rookery.test', undefined, 200],
    ['GET', 'lock', '@other:rookery.test', undefined, 403],
    ['GET', 'suspend', '@other:rookery.test', undefined, 403],
    ['PUT', 'suspend', '@other:rookery.test', { suspended: true }, 403],
    ['GET', 'lock', '@gone:rookery.test', undefined, 404],
    ['PUT', 'lock', '@gone:rookery.test', { locked: true }, 404],
    ['GET', 'suspend', '@gone:rookery.test', undefined, 404],
    ['PUT', 'suspend', '@gone:rookery.test', { suspended: true }, 404],
    ['PUT', 'lock', '@alice:rookery.test', { locked: 'yes' }, 400],
    ['PUT', 'suspend', '@alice:rookery.test', {}, 400],
  ])('%s %s of %s with %j: %i', async (method, what, userId, body, status) => {
    expect((await admin(method, `/_matrix/client/v1/admin/${what}/${userId}`, body)).status).toBe(status);
  });

  it('are the only ones who may', async () => {
    for (const what of ['lock', 'suspend']) {
      expect(await alice.request('GET', `/_matrix/client/v1/admin/${what}/${alice.userId}`)).toMatchObject({
        status: 403,
        body: { errcode: 'M_FORBIDDEN' },
      });
    }
    expect((await alice.request('GET', '/admin/whois/@root:rookery.test')).status).toBe(403);
    const own = await alice.request<{ capabilities: object }>('GET', '/capabilities');
    expect(own.body.capabilities).not.toHaveProperty(['m.account_moderation']);
    const theirs = await admin('GET', '/capabilities');
    expect((theirs.body as { capabilities: object }).capabilities).toHaveProperty(['m.account_moderation'], {
      suspend: true,
      lock: true,
    });
  });
});
