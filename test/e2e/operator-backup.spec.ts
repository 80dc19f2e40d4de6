import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { burn, rookery } from '../support/operators.js';
import { databaseKinds, ServerProcess } from '../support/server-process.js';

interface Event {
  readonly event_id: string;
  readonly type: string;
  readonly content: { readonly body?: string; readonly name?: string; readonly n?: number };
}

interface Events {
  readonly events: readonly Event[];
}

interface Sync {
  readonly next_batch: string;
  readonly account_data?: Events;
  readonly rooms?: {
    readonly join?: Record<string, { readonly timeline: Events; readonly state: Events }>;
    readonly invite?: Record<string, object>;
  };
  readonly device_lists?: { readonly changed?: readonly string[] };
  readonly device_one_time_keys_count: Record<string, number>;
  readonly device_unused_fallback_key_types: readonly string[];
  readonly to_device?: { readonly events: readonly object[] };
}

describe.each(databaseKinds)('a fire, and the backup (%s)', (kind) => {
  let server: ServerProcess;
  let outside: string;
  beforeAll(async () => {
    server = await ServerProcess.prepare(kind);
    outside = await mkdtemp(join(tmpdir(), 'rookery-backup-'));
    await server.start();
  });
  afterAll(async () => {
    await server?.remove();
    if (outside) await rm(outside, { recursive: true, force: true });
  });

  async function call<T = Record<string, unknown>>(
    token: string | undefined,
    method: string,
    path: string,
    body?: object,
  ): Promise<T> {
    const answer = await fetch(`${server.baseUrl}/_matrix/client/v3/${path}`, {
      method,
      ...(token !== undefined && { headers: { authorization: `Bearer ${token}` } }),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return (await answer.json()) as T;
  }
  const register = (username: string): Promise<{ access_token: string; user_id: string; device_id: string }> =>
    call(undefined, 'POST', 'register', { username, password: 'correct horse', auth: { type: 'm.login.dummy' } });

  it('brings everything back that was there when it was made, and clients go on', async () => {
    const [alice, bob] = [await register('alice'), await register('bob')];
    const { room_id: room } = await call<{ room_id: string }>(alice.access_token, 'POST', 'createRoom', {
      preset: 'public_chat',
    });
    const at = `rooms/${encodeURIComponent(room)}`;
    await call(bob.access_token, 'POST', `join/${encodeURIComponent(room)}`, {});
    const picture = Buffer.alloc(300_000, 'a picture ');
    const uploaded = await fetch(`${server.baseUrl}/_matrix/media/v3/upload?filename=p.bin`, {
      method: 'POST',
      headers: { authorization: `Bearer ${alice.access_token}`, 'content-type': 'application/octet-stream' },
      body: picture,
    });
    const media = ((await uploaded.json()) as { content_uri: string }).content_uri.slice('mxc://'.length);
    const names = { user_id: alice.user_id, device_id: alice.device_id };
    const keysOf = (prefix: string, count: number): object =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`curve25519:${prefix}${i}`, `${prefix}key${i}`]));
    await call(alice.access_token, 'POST', 'keys/upload', {
      device_keys: { ...names, algorithms: ['m.olm'], keys: { [`ed25519:${alice.device_id}`]: 'x' }, signatures: {} },
      one_time_keys: keysOf('A', 5),
      fallback_keys: { 'curve25519:F': 'fallback' },
    });
    const claim = (): Promise<{ one_time_keys: object }> =>
      call(bob.access_token, 'POST', 'keys/claim', {
        one_time_keys: { [alice.user_id]: { [alice.device_id]: 'curve25519' } },
      });

    // What holds when the backup is made, and what it is changed to afterwards.
    const { room_id: elsewhere } = await call<{ room_id: string }>(alice.access_token, 'POST', 'createRoom', {
      invite: [bob.user_id],
    });
    const keptBy = `user/${encodeURIComponent(bob.user_id)}/account_data/org.example.note`;
    const setTo = async (name: string, n: number): Promise<void> => {
      await call(alice.access_token, 'PUT', `${at}/state/m.room.name`, { name });
      await call(bob.access_token, 'PUT', keptBy, { n });
    };
    await setTo('as it was', 1);

    // People go on talking.
    const acknowledged: string[] = [];
    let isOver = false;
    const talk = async (from: number): Promise<void> => {
      for (let i = from; !isOver; i++) {
        const body = { msgtype: 'm.text', body: `message ${i}` };
        acknowledged.push(
          (await call<Event>(alice.access_token, 'PUT', `${at}/send/m.room.message/t${i}`, body)).event_id,
        );
      }
    };
    const talking = talk(0);
    while (acknowledged.length < 20) await call(bob.access_token, 'GET', 'sync?timeout=50');
    const before = acknowledged.length;
    const password = join(outside, 'password');
    await writeFile(password, 'correct horse battery staple\n');
    const backups = join(outside, 'backups');
    const made = await rookery(
      'backup',
      '-c',
      server.configFile,
      '--to',
      backups,
      '--encrypt',
      '--password-file',
      password,
    );
    expect(made).toMatchObject({ code: 0, output: expect.stringMatching(/Backup \d{8}T\d{6}Z of rookery.test: /) });
    const behind = acknowledged.length;

    // What follows is lost: messages that bob has read, a key that he was given.
    while (acknowledged.length < behind + 15) await call(bob.access_token, 'GET', 'sync?timeout=50');
    isOver = true;
    await talking;
    await setTo('lost', 2);
    await call(bob.access_token, 'POST', `rooms/${encodeURIComponent(elsewhere)}/leave`, {});
    await call(bob.access_token, 'PUT', 'pushrules/global/content/lost', { pattern: 'x', actions: [] });
    const claimed = JSON.stringify((await claim()).one_time_keys);
    expect(claimed).toContain('Akey');
    const { next_batch: since } = await call<Sync>(bob.access_token, 'GET', 'sync');
    const aliceSince = (await call<Sync>(alice.access_token, 'GET', 'sync')).next_batch;
    await server.stop('SIGKILL');
    await burn(server.folder, server.database);

    const restored = await rookery('restore', '--from', backups, '--password-file', password);
    expect(restored).toMatchObject({ code: 0, output: expect.stringContaining('Restored into') });
    expect(existsSync(server.configFile)).toBe(true);
    await server.start();
    expect(server.output).toContain('The database was restored');

    // As of one moment while it was made: nothing is missing in between.
    const page = await call<{ chunk: Event[] }>(bob.access_token, 'GET', `${at}/messages?dir=f&limit=1000`);
    const there = page.chunk.filter(({ type }) => type === 'm.room.message').map((event) => event.event_id);
    expect(there).toEqual(acknowledged.slice(0, there.length));
    expect(there.length).toBeGreaterThanOrEqual(before);
    expect(there.length).toBeLessThanOrEqual(behind + 1);
    const file = await fetch(`${server.baseUrl}/_matrix/client/v1/media/download/${media}`, {
      headers: { authorization: `Bearer ${bob.access_token}` },
    });
    expect(Buffer.from(await file.arrayBuffer()).equals(picture)).toBe(true);

    // Bob's position lies within what the old server gave out.
    const fresh: string[] = [];
    for (let i = 0; i < 30; i++) {
      const body = { msgtype: 'm.text', body: `after ${i}` };
      fresh.push((await call<Event>(alice.access_token, 'PUT', `${at}/send/m.room.message/n${i}`, body)).event_id);
    }
    const filter = encodeURIComponent(JSON.stringify({ room: { timeline: { limit: 50 } } }));
    const news = await call<Sync>(bob.access_token, 'GET', `sync?since=${since}&filter=${filter}`);
    const seen = (sync: Sync): string[] =>
      (sync.rooms?.join?.[room]?.timeline.events ?? []).map((event) => event.event_id);
    expect(seen(news)).toEqual(fresh);
    // What he holds that was lost is put right, once.
    const told = ({ rooms, account_data: kept }: Sync): unknown => ({
      name: rooms?.join?.[room]?.state.events.find(({ type }) => type === 'm.room.name')?.content.name,
      note: kept?.events.find(({ type }) => type === 'org.example.note')?.content.n,
      invites: Object.keys(rooms?.invite ?? {}),
      hasRules: kept?.events.some(({ type }) => type === 'm.push_rules') ?? false,
    });
    expect(told(news)).toEqual({ name: 'as it was', note: 1, invites: [elsewhere], hasRules: true });
    const later = await call<Sync>(bob.access_token, 'GET', `sync?since=${news.next_batch}`);
    expect(told(later)).toEqual({ name: undefined, note: undefined, invites: [], hasRules: false });
    expect(seen(later)).toEqual([]);
    const positionIn = (token: string): number => Number(/^s(\d+)/.exec(token)?.[1]);
    expect(positionIn(news.next_batch) - positionIn(since)).toBeGreaterThan(1_000_000_000);
    // Keys and devices: nothing is given out twice, and everybody asks anew.
    expect(news.device_lists?.changed).toContain(alice.user_id);
    expect(JSON.stringify((await claim()).one_time_keys)).not.toContain('Akey');
    const own = await call<Sync>(alice.access_token, 'GET', `sync?since=${aliceSince}`);
    expect(own.device_one_time_keys_count['curve25519'] ?? 0).toBe(0);
    expect(own.device_unused_fallback_key_types).toEqual([]);
    await call(alice.access_token, 'POST', 'keys/upload', { one_time_keys: keysOf('B', 5) });
    expect(JSON.stringify((await claim()).one_time_keys)).toContain('Bkey');
    // Messages between devices arrive.
    await call(bob.access_token, 'PUT', 'sendToDevice/m.test/s1', {
      messages: { [alice.user_id]: { [alice.device_id]: { hello: true } } },
    });
    const inbox = await call<Sync>(alice.access_token, 'GET', `sync?since=${own.next_batch}&timeout=10000`);
    expect(inbox.to_device?.events).toHaveLength(1);

    // The next backup writes what is new.
    const next = await rookery('backup', '-c', server.configFile, '--to', backups, '--password-file', password);
    expect(next).toMatchObject({ code: 0, output: expect.stringContaining('1 media file as before') });
    const verified = await rookery('backup', 'verify', '--all', '--from', backups, '--password-file', password);
    expect(verified).toMatchObject({ code: 0, output: expect.stringMatching(/whole \(\d+ pieces\)/) });
  });
});
