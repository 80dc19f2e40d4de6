import { canonicalJson, SigningKey } from '@rookery/events';
import type { JsonObject } from '@rookery/matrix-types';
import { eachDatabase, FakeClock, holdUp, type TestDatabase } from '@rookery/testing';
import { DeactivationService, DeviceService, InteractiveAuthRequired } from '@rookery/users';
import { RoomIds } from '@rookery/rooms';
import { KeyUploads } from '../device-keys/key-uploads.service.js';
import { DeviceKeyService } from '../device-keys/device-key.service.js';
import { DeviceListService } from '../device-lists/device-list.service.js';
import {
  buildE2ee,
  deviceKeysOf,
  type E2eeFixture,
  fixtureMigrations,
  requesterOf,
  requestOf,
} from '../e2ee.fixture.js';
import { CrossSigningService } from './cross-signing.service.js';
import { SignatureService } from '../device-keys/signature.service.js';

let serial = 0;

/** Signs an object under any key id. */
function signed(object: JsonObject, userId: string, key: SigningKey, keyId = `ed25519:${key.publicKey}`): JsonObject {
  const text = canonicalJson({ ...object, signatures: undefined, unsigned: undefined });
  const before = (object['signatures'] ?? {}) as Record<string, JsonObject>;
  return { ...object, signatures: { ...before, [userId]: { ...before[userId], [keyId]: key.sign(text) } } };
}

/** A user's three keys. */
function keySet(userId: string) {
  const key = () => SigningKey.generate();
  const [master, self, user] = [key(), key(), key()];
  const object = (of: SigningKey, usage: string): JsonObject => ({
    user_id: userId,
    usage: [usage],
    keys: { [`ed25519:${of.publicKey}`]: of.publicKey },
  });
  return {
    ...{ master, self, user },
    body: {
      master_key: object(master, 'master'),
      self_signing_key: signed(object(self, 'self_signing'), userId, master),
      user_signing_key: signed(object(user, 'user_signing'), userId, master),
    },
  };
}

eachDatabase('cross-signing', (open) => {
  const clock = new FakeClock();
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let service: CrossSigningService;
  let signatures: SignatureService;
  let alice: string;
  let bob: string;

  const upload = (userId: string, body: JsonObject) =>
    service.upload(requesterOf(userId), requestOf('POST', '/_matrix/client/v3/keys/device_signing/upload', body), body);
  const query = async (viewerId: string, userId: string) =>
    fixture.get(DeviceKeyService).query(viewerId, { [userId]: [] }, 1_000);
  const position = () => ({
    deviceLists: fixture.get(DeviceListService).stream.current(),
    events: fixture.get(RoomIds).events.current(),
  });

  beforeAll(async () => {
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildE2ee({ database: test.database, clock });
    service = fixture.get(CrossSigningService);
    signatures = fixture.get(SignatureService);
  });
  beforeEach(async () => {
    serial++;
    alice = await fixture.user(`alice${serial}`, 'PHONE');
    bob = await fixture.user(`bob${serial}`, 'PHONE');
  });
  afterAll(() => fixture.close());

  it('stores the first keys without asking, and shows each to whom it concerns', async () => {
    const keys = keySet(alice);
    const since = position();
    await upload(alice, keys.body);
    const own = await query(alice, alice);
    expect(own.master_keys).toEqual({ [alice]: keys.body.master_key });
    expect(own.self_signing_keys).toEqual({ [alice]: keys.body.self_signing_key });
    expect(own.user_signing_keys).toEqual({ [alice]: keys.body.user_signing_key });
    const others = await query(bob, alice);
    expect(others.master_keys).toEqual(own.master_keys);
    expect(others.self_signing_keys).toEqual(own.self_signing_keys);
    expect(others.user_signing_keys).toEqual({});
    const lists = fixture.get(DeviceListService);
    const news = { userId: alice, joinedRooms: new Set<string>(), after: since, upTo: position() };
    expect(await lists.changes(news)).toEqual({ changed: [alice], left: [] });
  });

  it('takes the same keys again, and asks before it replaces any', async () => {
    const keys = keySet(alice);
    await upload(alice, keys.body);
    const since = position();
    await upload(alice, keys.body);
    await upload(alice, { master_key: keys.body.master_key });
    expect(position()).toEqual(since);
    const other = keySet(alice);
    await expect(upload(alice, other.body)).rejects.toBeInstanceOf(InteractiveAuthRequired);
    const oneMore = signed({ ...other.body.self_signing_key, signatures: {} }, alice, keys.master);
    await expect(upload(alice, { self_signing_key: oneMore })).rejects.toBeInstanceOf(InteractiveAuthRequired);
    expect((await query(alice, alice)).master_keys).toEqual({ [alice]: keys.body.master_key });
  });

  it('replaces them where that was allowed, with all that the former master key vouched for', async () => {
    const userId = await fixture.user(`carol${serial}`, 'PHONE');
    const first = keySet(userId);
    await upload(userId, first.body);
    const second = keySet(userId);
    await service.allowReplacement(userId, clock.nowMs() + 1_000);
    await upload(userId, { master_key: second.body.master_key });
    const after = await query(userId, userId);
    expect(after.master_keys).toEqual({ [userId]: second.body.master_key });
    // The former master key's word counts no more.
    expect(after.self_signing_keys).toEqual({});
    expect(after.user_signing_keys).toEqual({});
    await expect(upload(userId, first.body)).rejects.toBeInstanceOf(InteractiveAuthRequired);
  });

  it('tells nobody but its owner of another user-signing key', async () => {
    const lists = fixture.get(DeviceListService);
    const keys = keySet(alice);
    await upload(alice, { master_key: keys.body.master_key, self_signing_key: keys.body.self_signing_key });
    const since = position();
    const shown = await lists.latest([alice]);
    await service.allowReplacement(alice, clock.nowMs() + 1_000);
    await upload(alice, { user_signing_key: keys.body.user_signing_key });
    expect((await query(alice, alice)).user_signing_keys).toEqual({ [alice]: keys.body.user_signing_key });
    const news = { joinedRooms: new Set<string>(), after: since, upTo: position() };
    expect(await lists.changes({ ...news, userId: alice })).toEqual({ changed: [alice], left: [] });
    // Nothing that other users or servers are told of.
    expect(await lists.latest([alice])).toEqual(shown);
  });

  it('does not let two uploads at once both be the first', async () => {
    const outcomes = await Promise.allSettled([upload(alice, keySet(alice).body), upload(alice, keySet(alice).body)]);
    expect(outcomes.map((one) => one.status).toSorted()).toEqual(['fulfilled', 'rejected']);
  });

  it("refuses keys that are not signed, not one's own, or not keys", async () => {
    const keys = keySet(alice);
    const { master_key: master, self_signing_key: self } = keys.body;
    const refuse = async (body: JsonObject, errcode: string) =>
      expect(upload(alice, body)).rejects.toMatchObject({ status: 400, errcode });
    await refuse({ self_signing_key: self }, 'M_MISSING_PARAM');
    await refuse({}, 'M_MISSING_PARAM');
    await refuse({ master_key: master, self_signing_key: { ...self, signatures: {} } }, 'M_INVALID_SIGNATURE');
    await refuse({ master_key: keySet(alice).body.master_key, self_signing_key: self }, 'M_INVALID_SIGNATURE');
    await refuse({ master_key: { ...master, user_id: bob } }, 'M_INVALID_PARAM');
    await refuse({ master_key: { ...master, usage: ['self_signing'] } }, 'M_INVALID_PARAM');
    await refuse({ master_key: { ...master, keys: {} } }, 'M_INVALID_PARAM');
    await refuse({ master_key: { ...master, keys: { 'ed25519:x': 'x' } } }, 'M_INVALID_PARAM');
    await refuse({ master_key: 'x' }, 'M_BAD_JSON');
    const twice = signed({ ...master, usage: ['self_signing'] }, alice, keys.master);
    await refuse({ master_key: master, self_signing_key: twice }, 'M_INVALID_PARAM');
    expect((await query(alice, alice)).master_keys).toEqual({});
  });

  it.each(['padded', 'URL-safe'])('takes no key in %s base64, but for one that it has already', async (encoding) => {
    // Of both alphabets.
    let publicKey = '';
    while (!/[+/]/.test(publicKey)) publicKey = SigningKey.generate().publicKey;
    const text = encoding === 'padded' ? `${publicKey}=` : publicKey.replaceAll('+', '-').replaceAll('/', '_');
    const master = { user_id: alice, usage: ['master'], keys: { [`ed25519:${text}`]: text } };
    await expect(upload(alice, { master_key: master })).rejects.toMatchObject({
      ...{ status: 400, errcode: 'M_INVALID_PARAM' },
    });
    expect((await query(alice, alice)).master_keys).toEqual({});
    await test.database.write((tx) =>
      tx.run('INSERT INTO e2e_cross_signing_keys (user_id, keytype, keydata, stream_id) VALUES (?, ?, ?, ?)', [
        ...[alice, 'master', canonicalJson(master), -serial],
      ]),
    );
    await upload(alice, { master_key: master });
    expect((await query(alice, alice)).master_keys).toEqual({ [alice]: master });
  });

  it('refuses a key whose id is that of a device, and a device with the id of a key', async () => {
    const keys = keySet(alice);
    await fixture.get(DeviceService).create(alice, keys.master.publicKey, undefined);
    await expect(upload(alice, keys.body)).rejects.toMatchObject({ status: 403, errcode: 'M_FORBIDDEN' });
    const others = keySet(bob);
    await upload(bob, others.body);
    await expect(fixture.login(bob, others.master.publicKey)).rejects.toMatchObject({ status: 403 });
  });

  it('keeps signatures on own devices and keys, for everybody to see', async () => {
    const keys = keySet(alice);
    const device = SigningKey.generate('PHONE');
    const deviceObject = deviceKeysOf(alice, 'PHONE', { keys: { 'ed25519:PHONE': device.publicKey } });
    await fixture.get(KeyUploads).upload(alice, 'PHONE', { device_keys: deviceObject });
    await upload(alice, keys.body);
    const since = position();
    const byKey = signed(deviceObject, alice, keys.self);
    const byDevice = signed(keys.body.master_key, alice, device, 'ed25519:PHONE');
    const failures = await signatures.upload(alice, {
      [alice]: { PHONE: byKey, [keys.master.publicKey]: byDevice },
    });
    expect(failures).toEqual({});
    const seen = await query(bob, alice);
    expect(seen.device_keys[alice]?.['PHONE']?.['signatures']).toEqual(byKey['signatures']);
    expect(seen.master_keys[alice]?.['signatures']).toEqual(byDevice['signatures']);
    expect(position().deviceLists).toBeGreaterThan(since.deviceLists);
    expect((await fixture.get(DeviceKeyService).forServer(new Map([[alice, []]]))).master_keys[alice]).toEqual(
      seen.master_keys[alice],
    );
  });

  describe('of a device that is on its way out', () => {
    let signedDevice: JsonObject;
    const storedSignatures = () =>
      test.database.query('SELECT key_id FROM e2e_cross_signing_signatures WHERE target_user_id = ?', [alice]);
    const deleteDevice = () => fixture.get(DeviceService).delete(alice, ['PHONE']);

    beforeEach(async () => {
      const keys = keySet(alice);
      const device = deviceKeysOf(alice, 'PHONE');
      await fixture.get(KeyUploads).upload(alice, 'PHONE', { device_keys: device });
      await upload(alice, keys.body);
      signedDevice = signed(device, alice, keys.self);
    });

    /** Does something before signatures are stored that were found to hold. */
    const beforeStoring = (work: () => Promise<unknown>): void => {
      const { database } = test;
      const { write } = database;
      const held = async (...args: Parameters<typeof write>): Promise<unknown> => {
        if (args[1]?.name === 'signatures_upload') {
          database.write = write;
          await work();
        }
        return write.apply(database, args);
      };
      database.write = held as typeof write;
    };

    it('keeps no signature where it has gone', async () => {
      beforeStoring(deleteDevice);
      const failures = await signatures.upload(alice, { [alice]: { PHONE: signedDevice } });
      expect(failures[alice]?.['PHONE']?.errcode).toBe('M_NOT_FOUND');
      expect(await storedSignatures()).toEqual([]);
    });

    it('keeps no signature where its account is closed', async () => {
      beforeStoring(() => fixture.get(DeactivationService).deactivate(alice, false, false, {}));
      await expect(signatures.upload(alice, { [alice]: { PHONE: signedDevice } })).rejects.toMatchObject({
        errcode: 'M_USER_DEACTIVATED',
      });
      expect(await storedSignatures()).toEqual([]);
    });

    it('takes with it a signature that is just being stored', async () => {
      const reached = holdUp(test.database, 'signatures_upload', 'session_close_devices');
      const storing = signatures.upload(alice, { [alice]: { PHONE: signedDevice } });
      await reached;
      await deleteDevice();
      expect(await storing).toEqual({});
      expect(await storedSignatures()).toEqual([]);
    });
  });

  it('keeps signatures on others, for the signer alone', async () => {
    const [a, b] = [keySet(alice), keySet(bob)];
    await upload(alice, a.body);
    await upload(bob, b.body);
    const since = position();
    const object = signed(b.body.master_key, alice, a.user);
    expect(await signatures.upload(alice, { [bob]: { [b.master.publicKey]: object } })).toEqual({});
    expect((await query(alice, bob)).master_keys[bob]).toEqual(object);
    expect((await query(bob, bob)).master_keys[bob]).toEqual(b.body.master_key);
    const changesFor = (userId: string) =>
      fixture
        .get(DeviceListService)
        .changes({ userId, joinedRooms: new Set<string>(), after: since, upTo: position() });
    expect(await changesFor(alice)).toEqual({ changed: [bob], left: [] });
    expect(await changesFor(bob)).toEqual({ changed: [], left: [] });
  });

  it('names every signature that does not hold, and keeps the others', async () => {
    const [a, b] = [keySet(alice), keySet(bob)];
    const deviceObject = deviceKeysOf(alice, 'PHONE');
    await fixture.get(KeyUploads).upload(alice, 'PHONE', { device_keys: deviceObject });
    await upload(alice, a.body);
    await upload(bob, b.body);
    const failures = await signatures.upload(alice, {
      [alice]: {
        PHONE: signed(deviceObject, alice, a.self),
        UNKNOWN: signed(deviceKeysOf(alice, 'UNKNOWN'), alice, a.self),
        [a.master.publicKey]: signed({ ...a.body.master_key, extra: 1 }, alice, a.self),
      },
      [bob]: { [b.master.publicKey]: signed(b.body.master_key, alice, a.self), other: {} },
      '@x:elsewhere.org': { key: signed({}, alice, a.user) },
    });
    expect(Object.fromEntries(Object.entries(failures[alice] ?? {}).map(([id, one]) => [id, one.errcode]))).toEqual({
      UNKNOWN: 'M_NOT_FOUND',
      [a.master.publicKey]: 'M_INVALID_SIGNATURE',
    });
    expect(failures[bob]?.[b.master.publicKey]?.errcode).toBe('M_INVALID_SIGNATURE');
    expect(failures[bob]?.['other']?.errcode).toBe('M_NOT_FOUND');
    expect(failures['@x:elsewhere.org']?.['key']?.errcode).toBe('M_NOT_FOUND');
    const forged = signed(deviceObject, alice, SigningKey.generate(), `ed25519:${a.self.publicKey}`);
    expect((await signatures.upload(alice, { [alice]: { PHONE: forged } }))[alice]?.['PHONE']?.errcode).toBe(
      'M_INVALID_SIGNATURE',
    );
    const changed = signed({ ...deviceObject, algorithms: [] }, alice, a.self);
    expect((await signatures.upload(alice, { [alice]: { PHONE: changed } }))[alice]?.['PHONE']?.errcode).toBe(
      'M_INVALID_SIGNATURE',
    );
    await expect(signatures.upload(alice, { nobody: {} })).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
  });

  it('goes with the account', async () => {
    await upload(alice, keySet(alice).body);
    await fixture.get(DeactivationService).deactivate(alice, false, false, {});
    expect((await query(bob, alice)).master_keys).toEqual({});
  });
});
