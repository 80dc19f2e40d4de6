import { DeviceListService } from '@rookery/e2ee';
import { Notifier } from '@rookery/replication';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';

interface Sync {
  readonly next_batch: string;
  readonly device_one_time_keys_count?: Record<string, number>;
  readonly to_device?: { readonly events: { content: { n: number } }[] };
}

interface Sliding {
  readonly pos: string;
  readonly extensions: { readonly e2ee?: { readonly device_one_time_keys_count?: Record<string, number> } };
}

const slidingPath = '/_matrix/client/unstable/org.matrix.simplified_msc3575/sync';

describe.each(['sqlite', 'postgres'] as const)('keys of devices, over HTTP (%s)', (database) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let bob: TestUser;
  let number = 0;

  const upload = async (count: number): Promise<void> => {
    const signatures = { [alice.userId]: { [`ed25519:${alice.deviceId}`]: 'signature' } };
    const keys = Array.from({ length: count }, () => {
      number += 1;
      return [`signed_curve25519:K${number}`, { key: `key ${number}`, signatures }] as const;
    });
    const body = { one_time_keys: Object.fromEntries(keys) };
    expect((await alice.request('POST', '/keys/upload', body)).status).toBe(200);
  };
  const claim = async (): Promise<string | undefined> => {
    const { status, body } = await bob.request<{ one_time_keys: Record<string, Record<string, object>> }>(
      'POST',
      '/keys/claim',
      { one_time_keys: { [alice.userId]: { [alice.deviceId]: 'signed_curve25519' } } },
    );
    expect(status).toBe(200);
    return Object.keys(body.one_time_keys[alice.userId]?.[alice.deviceId] ?? {})[0];
  };
  const sync = async (since?: string, timeout = 0): Promise<Sync> => {
    const query = `timeout=${timeout}${since === undefined ? '' : `&since=${since}`}`;
    return (await alice.request<Sync>('GET', `/sync?${query}`)).body;
  };
  const slide = async (pos?: string, timeout = 0): Promise<Sliding> => {
    const query = `?timeout=${timeout}${pos === undefined ? '' : `&pos=${pos}`}`;
    const body = { lists: {}, extensions: { e2ee: { enabled: true } } };
    return (await alice.request<Sliding>('POST', slidingPath + query, body)).body;
  };

  beforeAll(async () => {
    const settings = { presence: { enabled: false } };
    homeserver = await createTestHomeserver({ database, settings, fetch: validatedFetch });
    alice = await homeserver.registerUser('alice');
    bob = await homeserver.registerUser('bob');
  });
  afterAll(() => homeserver?.stop());

  it('wake a waiting sync of the device when one was handed out, and when more were uploaded', async () => {
    await upload(3);
    let since = (await sync()).next_batch;
    let pos = (await slide()).pos;
    for (const [change, left] of [
      [() => claim(), 2],
      [() => upload(5), 7],
    ] as const) {
      const startedMs = performance.now();
      const waiting = Promise.all([sync(since, 30_000), slide(pos, 30_000)]);
      await new Promise((resolve) => setTimeout(resolve, 150));
      await change();
      const [classic, sliding] = await waiting;
      expect(performance.now() - startedMs).toBeLessThan(10_000);
      expect(classic.device_one_time_keys_count).toMatchObject({ signed_curve25519: left });
      expect(sliding.extensions.e2ee?.device_one_time_keys_count).toMatchObject({ signed_curve25519: left });
      ({ next_batch: since } = classic);
      ({ pos } = sliding);
    }
    // And once only: what was told is no news any more.
    const again = performance.now();
    await Promise.all([sync(since, 400), slide(pos, 400)]);
    expect(performance.now() - again).toBeGreaterThan(350);
  });

  it('are told once, though they change while an answer is being written', async () => {
    await upload(3);
    let since = (await sync()).next_batch;
    let pos = (await slide()).pos;
    // Both read on, once they have chosen up to where, when the change is known everywhere.
    const { promise: changed, resolve: goOn } = Promise.withResolvers<void>();
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
    let held = 0;
    const undo = homeserver.servers.map((one) => {
      const lists = one.service(DeviceListService);
      const changes = lists.changes.bind(lists);
      lists.changes = async (query) => {
        if (query.userId === alice.userId && ++held >= 2) begin();
        await changed;
        return changes(query);
      };
      return () => void (lists.changes = changes);
    });
    const waiting = Promise.all([sync(since, 30_000), slide(pos, 30_000)]);
    await begun;
    await claim();
    const positions = (): Set<number> =>
      new Set(homeserver.servers.map((one) => one.service(Notifier).position('to_device')));
    while (positions().size > 1) await new Promise((resolve) => setTimeout(resolve, 10));
    goOn();
    const [classic, sliding] = await waiting;
    for (const restore of undo) restore();
    const left = classic.device_one_time_keys_count;
    expect(sliding.extensions.e2ee?.device_one_time_keys_count).toEqual(left);
    ({ next_batch: since } = classic);
    ({ pos } = sliding);
    const timed = async <T>(asking: Promise<T>): Promise<T> => {
      const startedMs = performance.now();
      const answer = await asking;
      // Long enough that an answer at once is none on a machine that has much to do either.
      expect(performance.now() - startedMs).toBeGreaterThan(1_450);
      return answer;
    };
    const [again, slidAgain] = await Promise.all([timed(sync(since, 1_500)), timed(slide(pos, 1_500))]);
    expect(again.device_one_time_keys_count).toEqual(left);
    expect(slidAgain.extensions.e2ee?.device_one_time_keys_count).toEqual(left);
  });

  it('are handed out once each to 50 claimers at a time', async () => {
    while ((await claim()) !== undefined);
    await upload(40);
    const claimed = (await Promise.all(Array.from({ length: 50 }, claim))).filter((key) => key !== undefined);
    expect(claimed).toHaveLength(40);
    expect(new Set(claimed).size).toBe(40);
    expect((await sync()).device_one_time_keys_count).toMatchObject({ signed_curve25519: 0 });
  });

  it('messages to devices arrive once each, though the server restarts while they are sent and answers get lost', async () => {
    let since = (await sync()).next_batch;
    const got: number[] = [];
    let sent = 0;
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 5; i++) {
        sent += 1;
        const path = `/sendToDevice/org.example.count/t${sent}`;
        const body = { messages: { [alice.userId]: { '*': { n: sent } } } };
        await bob.request('PUT', path, body);
        // Sent once more: the first answer may have been lost.
        if (i === 2) await bob.request('PUT', path, body);
      }
      // An answer that never arrived, and one that did.
      await sync(since);
      if (round < 2) await homeserver.restart();
      const answer = await sync(since);
      got.push(...(answer.to_device?.events ?? []).map(({ content }) => content.n));
      since = answer.next_batch;
    }
    const last = await sync(since);
    expect(last.to_device).toBeUndefined();
    expect(got).toEqual(Array.from({ length: 15 }, (_, index) => index + 1));
  });
});
