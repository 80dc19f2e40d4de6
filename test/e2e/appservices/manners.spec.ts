import { eventually, createTestHomeserver, type TestHomeserver } from '@rookery/testing';
import { Metrics } from '@rookery/platform';
import { createRoom, say } from '../rooms/rooms-client.js';
import { acting, FakeService, RegistrationFiles } from './support.js';

describe('manners towards application services', () => {
  const files = new RegistrationFiles();
  let service: FakeService;
  let homeserver: TestHomeserver;

  const start = async (settings: object = {}): Promise<void> => {
    homeserver = await createTestHomeserver({
      settings: { app_service_config_files: [files.write('irc', { url: service.url })], ...settings },
    });
  };
  beforeEach(async () => {
    service = await FakeService.start();
  });
  afterEach(async () => {
    await homeserver?.stop();
    await service?.down();
  });
  afterAll(() => files.remove());

  it('the token is in the address, too, where the settings want it', async () => {
    await start({ use_appservice_legacy_authorization: true });
    const bot = acting(homeserver, 'irc');
    const roomId = await createRoom(bot);
    await say(bot, roomId, 'hello');
    await eventually(() => service.texts.includes('hello'));
    await bot.request('POST', '/_matrix/client/v1/appservice/irc/ping', {});
    for (const { authorization, query } of service.requests)
      expect([authorization, query.get('access_token')]).toEqual(['Bearer hs-irc', 'hs-irc']);
  });

  it('a stop waits for no service that does not answer', async () => {
    let isAsked = false;
    let release = (): void => {};
    const forever = new Promise<undefined>((resolve) => (release = () => resolve(undefined)));
    service.onRequest = () => {
      isAsked = true;
      return forever;
    };
    await start();
    const bot = acting(homeserver, 'irc');
    await say(bot, await createRoom(bot), 'hello');
    await eventually(() => isAsked);
    const startedMs = performance.now();
    await homeserver.stop();
    expect(performance.now() - startedMs).toBeLessThan(10_000);
    release();
  });

  it('numbers are shown for each service', async () => {
    await start();
    const bot = acting(homeserver, 'irc');
    const roomId = await createRoom(bot);
    await say(bot, roomId, 'counted');
    await eventually(() => service.texts.includes('counted'));
    const numberOf = async (name: string): Promise<number> => {
      const { body } = await homeserver.server.service(Metrics).render();
      return Number(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, 'm').exec(body)?.[1]);
    };
    // The service has them before the server counts them.
    for (const name of [
      'synapse_appservice_api_sent_events_total',
      'synapse_handlers_appservice_events_processed_total',
    ]) {
      await eventually(async () => (await numberOf(name)) >= service.events.length);
      expect([name, await numberOf(name)]).toEqual([name, service.events.length]);
    }
    const position = await numberOf('synapse_event_processing_positions');
    expect(position).toBeGreaterThanOrEqual(service.events.length);
    expect(await numberOf('synapse_event_processing_lag')).toBeGreaterThanOrEqual(0);
  });

  it('the next start goes on at once with what a broken one left', async () => {
    await service.down();
    await start();
    const bot = acting(homeserver, 'irc');
    const roomId = await createRoom(bot);
    for (let n = 0; n < 150; n++) await say(bot, roomId, `${n}`);
    await service.listen();
    const startedMs = performance.now();
    await homeserver.restart();
    await eventually(() => service.texts.length === 150);
    expect(performance.now() - startedMs).toBeLessThan(20_000);
    expect(service.texts).toEqual(Array.from({ length: 150 }, (_, n) => String(n)));
    // Few large ones, not one for each event.
    expect(new Set(service.transactions.map(({ txnId }) => txnId)).size).toBeLessThan(10);
  });
});
