import { Database } from '@rookery/database';
import { createTestHomeserver, holdUp, type TestHomeserver, type TestUser } from '@rookery/testing';

const pusher = (pushkey: string): object => ({
  ...{ kind: 'http', app_id: 'app', pushkey, app_display_name: 'A', device_display_name: 'D', lang: 'en' },
  data: { url: 'https://push.example.org/_matrix/push/v1/notify' },
});
const hashKey = { key: 'MTIzNDU2Nzg5MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTI' };

describe.each(['sqlite', 'postgres'] as const)('what is stored while its session ends (%s)', (kind) => {
  let server: TestHomeserver;
  let database: Database;
  let count = 0;

  beforeAll(async () => {
    server = await createTestHomeserver({ database: kind });
    database = server.server.service(Database);
  });
  afterAll(() => server.stop());

  /** Sends a request that writes while a logout is about to be durable. @returns its status */
  const during = async (user: TestUser, write: string, send: () => Promise<{ status: number }>): Promise<number> => {
    const reached = holdUp(database, 'session_close_devices', write);
    const logout = user.request('POST', '/logout', {});
    await reached;
    const sent = send();
    expect((await logout).status).toBe(200);
    return (await sent).status;
  };

  it('a pusher set while its session ends is not kept', async () => {
    const user = await server.registerUser(`pushed${count++}`);
    expect(await during(user, 'set_pusher', () => user.request('POST', '/pushers/set', pusher('late')))).toBe(401);
    expect(await database.query('SELECT pushkey FROM pushers WHERE user_name = ?', [user.userId])).toEqual([]);
  });

  it('is no pusher of an address that is given up at that moment', async () => {
    const user = await server.registerUser(`mailed${count++}`);
    const address = `${user.userId.slice(1, user.userId.indexOf(':'))}@example.org`;
    await database.write((tx) =>
      tx.insertMany(
        'user_threepids',
        ['user_id', 'medium', 'address', 'validated_at', 'added_at'],
        [[user.userId, 'email', address, 1, 1]],
      ),
    );
    const settings = { ...pusher(address), kind: 'email', app_id: 'm.email', data: {} };
    const reached = holdUp(database, 'threepid_remove', 'set_pusher');
    const removed = user.request('POST', '/account/3pid/delete', { medium: 'email', address });
    await reached;
    const sent = user.request('POST', '/pushers/set', settings);
    expect((await removed).status).toBe(200);
    expect((await sent).status).toBe(400);
    expect(await database.query('SELECT pushkey FROM pushers WHERE user_name = ?', [user.userId])).toEqual([]);
  });

  it('is the pusher of an address under either form of it', async () => {
    const user = await server.registerUser(`mailed${count++}`);
    const address = `${user.userId.slice(1, user.userId.indexOf(':'))}@example.org`;
    const written = address.toUpperCase();
    await database.write((tx) =>
      tx.insertMany(
        'user_threepids',
        ['user_id', 'medium', 'address', 'validated_at', 'added_at'],
        [[user.userId, 'email', address, 1, 1]],
      ),
    );
    const set = async (pushkey: string, more: object = {}): Promise<void> => {
      const settings = { ...pusher(pushkey), kind: 'email', app_id: 'm.email', data: {}, ...more };
      expect((await user.request('POST', '/pushers/set', settings)).status).toBe(200);
    };
    const keys = async (): Promise<string[]> => {
      const { body } = await user.request<{ pushers: { pushkey: string }[] }>('GET', '/pushers');
      return body.pushers.map((one) => one.pushkey);
    };
    const asWritten = (): Promise<unknown> =>
      database.write((tx) => tx.run('UPDATE pushers SET pushkey = ? WHERE user_name = ?', [written, user.userId]));
    await set(written);
    expect(await keys()).toEqual([address]);
    // As another server has stored it.
    await asWritten();
    await set(address);
    expect(await keys()).toEqual([address]);
    await set(written, { kind: null });
    expect(await keys()).toEqual([]);
    await set(written);
    await asWritten();
    const given = { medium: 'email', address };
    expect((await user.request('POST', '/account/3pid/delete', given)).status).toBe(200);
    expect(await keys()).toEqual([]);
  });

  it('is no key of its device', async () => {
    const user = await server.registerUser(`keyed${count++}`);
    const keys = { one_time_keys: { 'signed_curve25519:AAAA': { ...hashKey, signatures: {} } } };
    expect(await during(user, 'keys_upload', () => user.request('POST', '/keys/upload', keys))).toBeGreaterThanOrEqual(
      400,
    );
    expect(await database.query('SELECT key_id FROM e2e_one_time_keys_json WHERE user_id = ?', [user.userId])).toEqual(
      [],
    );
  });
});
