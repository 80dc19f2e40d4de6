import { eachDatabase, FakeClock, type TestDatabase } from '@rookery/testing';
import { DeviceService } from '@rookery/users';
import { buildE2ee, type E2eeFixture, fixtureMigrations } from '../e2ee.fixture.js';
import { KeyUploads } from './key-uploads.service.js';
import { insertOneTimeKeys } from './one-time-key.query.js';
import { OneTimeKeyService } from './one-time-key.service.js';

const algorithm = 'signed_curve25519';
let serial = 0;

eachDatabase('one-time keys', (open, kind) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let keys: OneTimeKeyService;
  let alice: string;

  const named = (prefix: string, count: number): Record<string, unknown> =>
    Object.fromEntries(
      Array.from({ length: count }, (_, index) => {
        const id = `${prefix}${String(index).padStart(4, '0')}`;
        return [`${algorithm}:${id}`, { key: id }];
      }),
    );
  const upload = (oneTime: Record<string, unknown>, fallback?: Record<string, unknown>) =>
    fixture
      .get(KeyUploads)
      .upload(alice, 'PHONE', { one_time_keys: oneTime, ...(fallback ? { fallback_keys: fallback } : {}) });
  /** Claims one key; its id. */
  const claim = async (of = keys): Promise<string | undefined> => {
    const { keys: claimed } = await of.claim(alice, { [alice]: { PHONE: algorithm } }, 1_000);
    return Object.keys(claimed[alice]?.['PHONE'] ?? {})[0]?.slice(algorithm.length + 1);
  };
  const counts = async () => (await keys.counts(alice, 'PHONE')).counts[algorithm];

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildE2ee({ database: test.database, clock });
    keys = fixture.get(OneTimeKeyService);
  });
  beforeEach(async () => {
    alice = await fixture.user(`alice${++serial}`, 'PHONE', 'LAPTOP');
  });
  afterAll(() => fixture.close());

  it('hands out every key once to 50 claimers at a time, and no key too many', async () => {
    await upload(named('K', 120));
    const claimed: (string | undefined)[] = [];
    for (let round = 0; round < 3; round++)
      claimed.push(...(await Promise.all(Array.from({ length: 50 }, () => claim()))));
    const got = claimed.filter((id) => id !== undefined);
    expect(got).toHaveLength(120);
    expect(new Set(got).size).toBe(120);
    expect(await counts()).toBe(0);
  });

  if (kind === 'postgres') {
    it('hands out every key once, also by two processes', async () => {
      const other = await buildE2ee({ database: await test.reopen(), clock });
      await upload(named('K', 60));
      const claims = await Promise.all(
        Array.from({ length: 50 }, (_, index) => claim(index % 2 === 0 ? keys : other.get(OneTimeKeyService))),
      );
      expect(new Set(claims).size).toBe(50);
      expect(claims).not.toContain(undefined);
      await other.close();
    });
  }

  it('hands them out in the order of the uploads, also within one millisecond', async () => {
    await upload(named('Z', 2));
    await upload(named('M', 2));
    await upload(named('A', 2));
    const order = [];
    for (let i = 0; i < 6; i++) order.push((await claim())?.[0]);
    expect(order).toEqual(['Z', 'Z', 'M', 'M', 'A', 'A']);
    expect(await claim()).toBeUndefined();
  });

  it('does not take back a key that was handed out when its upload is sent again', async () => {
    await upload(named('K', 1));
    expect(await claim()).toBe('K0000');
    expect(await upload(named('K', 1))).toEqual({ [algorithm]: 0 });
    expect(await claim()).toBeUndefined();
    // Another key under the same id is another key.
    await upload({ [`${algorithm}:K0000`]: { key: 'other' } });
    expect(await claim()).toBe('K0000');
  });

  it('takes the same key twice, another one under its id not', async () => {
    await upload(named('K', 2));
    expect(await upload(named('K', 3))).toEqual({ [algorithm]: 3 });
    await expect(upload({ [`${algorithm}:K0001`]: { key: 'other' } })).rejects.toMatchObject({
      status: 400,
      errcode: 'M_INVALID_PARAM',
    });
    expect(await counts()).toBe(3);
  });

  it('counts what is left, from memory and right after every change', async () => {
    expect(await keys.counts(alice, 'PHONE')).toEqual({ counts: { [algorithm]: 0 }, unusedFallbackTypes: [] });
    await upload(named('K', 3), { [`${algorithm}:F`]: { key: 'f', fallback: true } });
    expect(await keys.counts(alice, 'PHONE')).toEqual({
      counts: { [algorithm]: 3 },
      unusedFallbackTypes: [algorithm],
    });
    await claim();
    expect(await counts()).toBe(2);
    expect(await keys.counts(alice, 'PHONE')).toBe(await keys.counts(alice, 'PHONE'));
  });

  it('falls back when there is none left, and says so until there is a new fallback key', async () => {
    const fallback = { [`${algorithm}:F1`]: { key: 'f1', fallback: true } };
    await upload(named('K', 1), fallback);
    expect(await claim()).toBe('K0000');
    expect((await keys.counts(alice, 'PHONE')).unusedFallbackTypes).toEqual([algorithm]);
    expect(await claim()).toBe('F1');
    expect(await claim()).toBe('F1');
    expect((await keys.counts(alice, 'PHONE')).unusedFallbackTypes).toEqual([]);
    await upload({}, fallback);
    expect((await keys.counts(alice, 'PHONE')).unusedFallbackTypes).toEqual([]);
    await upload({}, { [`${algorithm}:F2`]: { key: 'f2', fallback: true } });
    expect((await keys.counts(alice, 'PHONE')).unusedFallbackTypes).toEqual([algorithm]);
    expect(await claim()).toBe('F2');
  });

  it('serves many devices in one claim, each its own', async () => {
    const bob = await fixture.user(`bob${serial}`, 'B1', 'B2');
    await upload(named('K', 1));
    await fixture.get(KeyUploads).upload(bob, 'B1', { one_time_keys: named('B', 1) });
    await fixture.get(KeyUploads).upload(bob, 'B2', { fallback_keys: { [`${algorithm}:F`]: { key: 'f' } } });
    const wanted = {
      [alice]: { PHONE: algorithm, LAPTOP: algorithm, NONE: algorithm },
      [bob]: { B1: algorithm, B2: algorithm },
    };
    const answer = await keys.claim(alice, { ...wanted, '@x:elsewhere.org': { D: algorithm } }, 1_000);
    expect(answer.keys).toEqual({
      [alice]: { PHONE: { [`${algorithm}:K0000`]: { key: 'K0000' } } },
      [bob]: { B1: { [`${algorithm}:B0000`]: { key: 'B0000' } }, B2: { [`${algorithm}:F`]: { key: 'f' } } },
    });
    expect(Object.keys(answer.failures)).toEqual(['elsewhere.org']);
  });

  it('serves other servers the rest of a claim that has nonsense in it', async () => {
    await upload(named('K', 1));
    const wanted = [[alice, { 'A\0': algorithm, LAPTOP: 'a\0b', PHONE: algorithm }]] as const;
    expect(await keys.claimLocal(wanted)).toEqual({
      [alice]: { PHONE: { [`${algorithm}:K0000`]: { key: 'K0000' } } },
    });
  });

  it('goes with the device', async () => {
    await upload(named('K', 5), { [`${algorithm}:F`]: { key: 'f' } });
    expect(await counts()).toBe(5);
    await fixture.get(DeviceService).delete(alice, ['PHONE']);
    expect(await claim()).toBeUndefined();
    expect(await counts()).toBe(0);
    await expect(upload(named('K', 5))).rejects.toMatchObject({ errcode: 'M_UNKNOWN_DEVICE' });
  });

  it('refuses keys of too many algorithms, however few come at a time', async () => {
    for (let i = 0; i < 10; i++) {
      await upload({ [`one-time${i}:A`]: { key: 'x' } });
      await upload({}, { [`fallback${i}:A`]: { key: 'x' } });
    }
    const refused = { status: 413, errcode: 'M_TOO_LARGE' };
    await expect(upload({ 'another:A': { key: 'x' } })).rejects.toMatchObject(refused);
    await expect(upload({}, { 'another:A': { key: 'x' } })).rejects.toMatchObject(refused);
    await upload({ 'one-time0:B': { key: 'x' }, 'fallback0:B': { key: 'x' } }, { 'one-time1:B': { key: 'x' } });
    expect(Object.keys((await keys.counts(alice, 'PHONE')).counts)).toHaveLength(12);
  });

  it('lets who has too many from before renew a fallback key', async () => {
    const more = Array.from({ length: 5_001 }, (_, index) => ({
      ...{ algorithm: `of${index % 25}`, keyId: `K${index}`, keyJson: '{}' },
    }));
    await test.database.write((tx) => insertOneTimeKeys(tx, alice, 'PHONE', more, clock.nowMs()));
    await upload({}, { 'of0:F': { key: 'x' } });
    expect((await keys.counts(alice, 'PHONE')).unusedFallbackTypes).toEqual(['of0']);
    const refused = { status: 413, errcode: 'M_TOO_LARGE' };
    await expect(upload({ 'of0:A': { key: 'x' } })).rejects.toMatchObject(refused);
    await expect(upload({}, { 'another:F': { key: 'x' } })).rejects.toMatchObject(refused);
  });

  it('refuses too many keys, nonsense names and nonsense keys', async () => {
    await expect(upload(named('K', 1_001))).rejects.toMatchObject({ status: 413, errcode: 'M_TOO_LARGE' });
    await expect(upload({ nocolon: { key: 'x' } })).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(upload({ [`${algorithm}:`]: { key: 'x' } })).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(upload({ [`${algorithm}:A`]: 5 })).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
    await expect(upload({ [`${algorithm}:A`]: { key: 'x'.repeat(70_000) } })).rejects.toMatchObject({ status: 413 });
    await expect(upload({}, { 'a:1': 'x', 'a:2': 'y' })).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    for (let i = 0; i < 5; i++) await upload(named(`L${i}`, 1_000));
    await expect(upload(named('M', 1))).rejects.toMatchObject({ status: 413 });
    await expect(upload({ 'another:A': { key: 'x' } })).rejects.toMatchObject({ status: 413 });
    await expect(keys.claim(alice, { nobody: {} }, 1)).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(keys.claim(alice, { [alice]: 'PHONE' }, 1)).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
    await expect(keys.claim(alice, { [alice]: { PHONE: 5 } }, 1)).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
  });
});
