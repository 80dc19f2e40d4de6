import type { JsonObject } from '@rookery/matrix-types';
import { eachDatabase, FakeClock, holdUp, type TestDatabase } from '@rookery/testing';
import { DeactivationService, DeviceService } from '@rookery/users';
import { DeviceKeyService } from '../device-keys/device-key.service.js';
import { buildE2ee, deviceKeysOf, type E2eeFixture, fixtureMigrations, requesterOf } from '../e2ee.fixture.js';
import { ToDeviceSending } from '../to-device/to-device-sending.service.js';
import { DehydratedDeviceService } from './dehydrated-device.service.js';

let serial = 0;

eachDatabase('dehydrated devices', (open) => {
  let test: TestDatabase;
  let fixture: E2eeFixture;
  let service: DehydratedDeviceService;
  let alice: string;

  const body = (deviceId: string, more: JsonObject = {}): JsonObject => ({
    device_id: deviceId,
    device_data: { algorithm: 'x', secret: deviceId },
    initial_device_display_name: 'Asleep',
    device_keys: deviceKeysOf(alice, deviceId, { dehydrated: true }),
    one_time_keys: { 'signed_curve25519:1': { key: 'k' } },
    ...more,
  });
  const devices = async () => (await fixture.get(DeviceService).list(alice)).map((one) => one.deviceId);

  beforeAll(async () => {
    const clock = new FakeClock();
    test = await open(clock);
    await test.migrate(fixtureMigrations);
    fixture = await buildE2ee({ database: test.database, clock });
    service = fixture.get(DehydratedDeviceService);
  });
  beforeEach(async () => {
    alice = await fixture.user(`alice${++serial}`, 'PHONE');
  });
  afterAll(() => fixture.close());

  it('is stored with its keys, and replaced by the next', async () => {
    await expect(service.get(alice)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    expect(await service.put(alice, body('SLEEP1'))).toBe('SLEEP1');
    expect(await service.get(alice)).toEqual({ deviceId: 'SLEEP1', data: { algorithm: 'x', secret: 'SLEEP1' } });
    const { device_keys: keys } = await fixture.get(DeviceKeyService).query(alice, { [alice]: [] }, 1);
    expect(keys[alice]?.['SLEEP1']).toMatchObject({ dehydrated: true, unsigned: { device_display_name: 'Asleep' } });
    await service.put(alice, body('SLEEP2'));
    expect(await devices()).toEqual(['PHONE', 'SLEEP2']);
    expect((await service.get(alice)).deviceId).toBe('SLEEP2');
  });

  it('is one, however many are put there at once', async () => {
    await Promise.all(['SLEEP1', 'SLEEP2', 'SLEEP3'].map((deviceId) => service.put(alice, body(deviceId))));
    expect(await devices()).toEqual(['PHONE', (await service.get(alice)).deviceId]);
  });

  it('gets messages, which stay until it is deleted', async () => {
    await service.put(alice, body('SLEEP'));
    for (let n = 0; n < 3; n++)
      await fixture
        .get(ToDeviceSending)
        .sendByClient(requesterOf(alice), 'm.test', `t${n}`, { [alice]: { SLEEP: { n } } });
    const first = await service.events(alice, 'SLEEP', 0, 2);
    expect(first.events).toHaveLength(2);
    expect((await service.events(alice, 'SLEEP', first.position, 2)).events).toHaveLength(1);
    expect((await service.events(alice, 'SLEEP', 0, 10)).events).toHaveLength(3);
    await expect(service.events(alice, 'PHONE', 0, 2)).rejects.toMatchObject({ errcode: 'M_FORBIDDEN' });
    expect(await service.delete(alice)).toBe('SLEEP');
    await expect(service.get(alice)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    expect(await devices()).toEqual(['PHONE']);
  });

  it('is gone when its device is deleted', async () => {
    await service.put(alice, body('SLEEP'));
    await fixture.get(DeviceService).delete(alice, ['SLEEP']);
    await expect(service.get(alice)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
  });

  it('is not stored where its account is closed before it is whole', async () => {
    const reached = holdUp(test.database, 'deactivate', 'dehydrated_device');
    const closing = fixture.get(DeactivationService).deactivate(alice, false, false, {});
    await reached;
    await expect(service.put(alice, body('SLEEP'))).rejects.toMatchObject({ errcode: 'M_USER_DEACTIVATED' });
    await closing;
    await expect(service.get(alice)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
    expect(await devices()).toEqual([]);
  });

  /** From the first of these writes on the server is dead. */
  const dieWith = (...names: readonly string[]): jest.SpyInstance => {
    const { database } = test;
    const write = database.write.bind(database);
    let isDead = false;
    return jest.spyOn(database, 'write').mockImplementation((work, options) => {
      isDead ||= names.includes(options?.name ?? '');
      return isDead ? Promise.reject(new Error('The server was killed')) : write(work, options);
    });
  };

  it('is stored by the same request after a crash, and in no half', async () => {
    const dying = dieWith('dehydrated_device');
    await expect(service.put(alice, body('SLEEP'))).rejects.toThrow('killed');
    dying.mockRestore();
    expect(await devices()).toEqual(['PHONE']);
    expect(await service.put(alice, body('SLEEP'))).toBe('SLEEP');
  });

  it('takes the place of the former one at once', async () => {
    await service.put(alice, body('SLEEP1'));
    const dying = dieWith('session_close_devices');
    await service.put(alice, body('SLEEP2')).catch(() => undefined);
    dying.mockRestore();
    expect(await devices()).toEqual(['PHONE', 'SLEEP2']);
    expect((await service.get(alice)).deviceId).toBe('SLEEP2');
  });

  it('is gone when its device is deleted while it is stored anew', async () => {
    await service.put(alice, body('SLEEP'));
    const reached = holdUp(test.database, 'dehydrated_device', 'session_close_devices');
    const stored = service.put(alice, body('SLEEP'));
    await reached;
    await fixture.get(DeviceService).delete(alice, ['SLEEP']);
    await stored;
    await expect(service.get(alice)).rejects.toMatchObject({ errcode: 'M_NOT_FOUND' });
  });

  it('refuses what is not a device of its own, and leaves nothing behind', async () => {
    await expect(service.put(alice, body('PHONE'))).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    await expect(service.put(alice, body('S', { device_keys: undefined }))).rejects.toMatchObject({
      errcode: 'M_MISSING_PARAM',
    });
    await expect(service.put(alice, body('S', { device_keys: deviceKeysOf(alice, 'T') }))).rejects.toMatchObject({
      errcode: 'M_INVALID_PARAM',
    });
    await expect(service.put(alice, body('S', { device_data: 'x' }))).rejects.toMatchObject({ errcode: 'M_BAD_JSON' });
    await expect(service.put(alice, body(''))).rejects.toMatchObject({ errcode: 'M_INVALID_PARAM' });
    expect(await devices()).toEqual(['PHONE']);
  });
});
