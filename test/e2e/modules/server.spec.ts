import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Database } from '@rookery/database';
import { ModuleServices } from '@rookery/module-services';
import { Config, loggerOptions, PinoLogger } from '@rookery/platform';
import { eventually, createTestHomeserver } from '@rookery/testing';
import { temporaryFolder } from '@rookery/testing/internal';
import { operatorOf } from '../admin/operator-world.js';
import { stringify } from 'yaml';
import { probe, startProbe } from './probe-server.js';

const limited = { per_second: 0.001, burst_count: 2 };
const module = join(import.meta.dirname, 'fixtures/probe.ts');

describe.each(['sqlite', 'postgres'] as const)('what a server does around its modules (%s)', (kind) => {
  it('an administrator’s rate limits for a user replace those of the settings', async () => {
    const server = await startProbe(kind, { rc_message: limited });
    try {
      const ann = await server.registerUser('ann');
      const ben = await server.registerUser('ben');
      const operator = await operatorOf(server);
      const path = `/v1/users/${encodeURIComponent(ben.userId)}/override_ratelimit`;
      await operator.ok('POST', path, { messages_per_second: 0, burst_count: 0 });
      const sends = async (user: typeof ann): Promise<number[]> => {
        const room = await user.request<{ room_id: string }>('POST', '/createRoom', {});
        const path = `/rooms/${encodeURIComponent(room.body.room_id)}/send/m.room.message/`;
        const statuses: number[] = [];
        for (let i = 0; i < 4; i++) statuses.push((await user.request('PUT', `${path}${i}`, { body: 'x' })).status);
        return statuses;
      };
      expect(await sends(ann)).toEqual([200, 200, 429, 429]);
      expect(await sends(ben)).toEqual([200, 200, 200, 200]);
    } finally {
      await server.stop();
    }
  });

  it('refuses to start with a module that takes what is not its own', async () => {
    const greedy = { module: join(import.meta.dirname, 'fixtures/greedy.ts') };
    const starting = createTestHomeserver({ database: kind, settings: { modules: [{ module }, greedy] } });
    await expect(starting).rejects.toThrow(
      'module greedy: register() failed: 1: the name of users has to begin with module_greedy_',
    );
  });

  it('shows its numbers', async () => {
    const listener = {
      port: 0,
      bind_addresses: ['127.0.0.1'],
      type: 'http',
      resources: [{ names: ['client', 'metrics'] }],
    };
    const server = await startProbe(kind, { enable_metrics: true, listeners: [listener] });
    try {
      await server.registerUser('ann');
      // A new server may have something to do in the background at first.
      const text = await eventually(async () => {
        const page = await (await fetch(`${server.baseUrl}/_synapse/metrics`)).text();
        return /^synapse_background_update_status\{.*\} 3$/m.test(page) && page;
      });
      const line = (start: string): string | undefined => text.split('\n').find((one) => one.startsWith(start));
      expect(line('synapse_build_info{')).toContain('version="');
      expect(line('synapse_event_persisted_position{')).toBeDefined();
      expect(line('synapse_notifier_listeners{')).toMatch(/ 0$/);
      expect(line('synapse_notifier_users{')).toMatch(/ 0$/);
      expect(line('synapse_background_update_status{')).toMatch(/ 3$/);
      expect(line('synapse_scheduler_running_tasks{')).toMatch(/ 0$/);
      expect(line('synapse_util_caches_cache_max_size{name="get_event"')).toMatch(/ [1-9]\d*$/);
      expect(line('synapse_util_caches_cache{name="get_event"')).toBeDefined();
      expect(line('synapse_non_deactivated_user_count{app_service="native"')).toMatch(/ 1$/);
      expect(line('synapse_admin_daily_active_users{')).toBeDefined();
      expect(line('nodejs_eventloop_lag_seconds')).toBeDefined();
      expect(line('process_resident_memory_bytes')).toBeDefined();
      expect(text).toMatch(/synapse_storage_transaction_time_count_total\{.*desc="register"/);
      expect(text).toMatch(/rookery_module_callback_seconds_count\{.*callback="onUserRegistration"/);
    } finally {
      await server.stop();
    }
  });
});

describe('modules that come and go while the server runs', () => {
  it('get their paths, their events and nothing from before', async () => {
    const server = await createTestHomeserver({});
    const settings = (modules: object[]): Config =>
      Config.fromObject({ server_name: 'rookery.test', report_stats: false, modules }, { configDir: process.cwd() });
    try {
      const ann = await server.registerUser('ann');
      const { body: room } = await ann.request<{ room_id: string }>('POST', '/createRoom', {});
      let n = 0;
      const say = (body: string): ReturnType<typeof ann.request> =>
        ann.request('PUT', `/rooms/${encodeURIComponent(room.room_id)}/send/m.room.message/${++n}`, { body });
      const told = (): unknown[] =>
        probe.fired
          .filter(({ name }) => name === 'onNewEvent')
          .map(({ args: [event] }) => (event as { content: { body?: unknown } }).content.body)
          .filter((body) => body !== undefined);
      const path = '/_synapse/client/probe/files/x';
      probe.reset();
      await say('before');
      expect((await server.request('GET', path)).status).toBe(404);

      await server.server.reload(settings([{ module }]));
      expect(server.server.moduleNames).toEqual(['probe']);
      expect(await server.request('GET', path)).toMatchObject({ status: 200, body: 'x' });
      await say('with');
      await eventually(() => (told().length > 0 ? true : undefined));
      expect(told()).toEqual(['with']);

      await server.server.reload(settings([]));
      expect((await server.request('GET', path)).status).toBe(404);
      await say('without');
      await server.server.reload(settings([{ module }]));
      await say('again');
      await eventually(() => (told().includes('again') ? true : undefined));
      expect(told()).toEqual(['with', 'again']);
    } finally {
      await server.stop();
    }
  });

  it('stay as they are, with all settings, when one of the new ones is wrong', async () => {
    const entry = {
      module,
      config: undefined,
      onError: 'deny',
      timeLimitMs: undefined,
      allowFederationTo: [],
    } as const;
    const server = await createTestHomeserver({ modules: [entry] });
    const settings = (more: object): Config =>
      Config.fromObject({ server_name: 'rookery.test', report_stats: false, ...more }, { configDir: process.cwd() });
    try {
      const wrong = settings({ modules: [{ module: './nowhere.js' }], tls_certificate_path: '/tls/next.pem' });
      await expect(server.server.reload(wrong)).rejects.toThrow('nowhere.js');
      expect(server.server.moduleNames).toEqual(['probe']);
      expect(server.server.config.get('tls_certificate_path')).toBeUndefined();
      // Modules that were given beside the settings are not the settings' to take away.
      await server.server.reload(settings({ tls_certificate_path: '/tls/next.pem' }));
      expect(server.server.moduleNames).toEqual(['probe']);
      expect(server.server.config.get('tls_certificate_path')).toBe('/tls/next.pem');
    } finally {
      await server.stop();
    }
  });

  it('stay as they are, with all settings, when the file of log_config is wrong', async () => {
    const server = await createTestHomeserver({});
    const log = join(await temporaryFolder('rookery-log-'), 'log.yaml');
    await writeFile(log, 'root: {level: LOUD}');
    const more = { modules: [{ module }], tls_certificate_path: '/tls/next.pem', log_config: log };
    const next = Config.fromObject({ server_name: 'rookery.test', report_stats: false, ...more });
    try {
      await expect(server.server.reload(next)).rejects.toThrow('expected one of DEBUG');
      expect(server.server.moduleNames).toEqual([]);
      expect(server.server.config.get('tls_certificate_path')).toBeUndefined();
      await writeFile(log, 'root: {level: DEBUG}');
      await server.server.reload(next);
      expect(server.server.moduleNames).toEqual(['probe']);
    } finally {
      await server.stop();
    }
  });

  it('are in force beside the levels of the log, and what else changed of it waits for a restart, which is said', async () => {
    const folder = await temporaryFolder('rookery-log-');
    const log = join(folder, 'log.yaml');
    const write = (level: string, file: string): Promise<void> =>
      writeFile(
        log,
        stringify({
          handlers: { file: { class: 'logging.FileHandler', filename: join(folder, file) } },
          root: { level, handlers: ['file'] },
        }),
      );
    await write('INFO', 'one.log');
    const settings = { server_name: 'rookery.test', report_stats: false, log_config: log };
    const logger = PinoLogger.create(loggerOptions(Config.fromObject(settings)));
    const server = await createTestHomeserver({ logger, settings: { log_config: log } });
    const reload = async (): Promise<readonly string[]> =>
      (await server.server.reload(Config.fromObject(settings))).left;
    const said = 'of the log, levels hold; where lines go and how they look holds after a restart only';
    try {
      await write('DEBUG', 'one.log');
      expect(await reload()).not.toContain(said);
      await write('ERROR', 'two.log');
      expect(await reload()).toContain(said);
      expect(logger.isEnabled('info')).toBe(false);
      await write('INFO', 'one.log');
      expect(await reload()).not.toContain(said);
    } finally {
      await server.stop();
    }
  });

  it('are in force where what runs for them cannot be adapted, and that is said', async () => {
    const server = await createTestHomeserver({ processes: 1 });
    const settings = (modules: object[]): Config =>
      Config.fromObject({ server_name: 'rookery.test', report_stats: false, modules });
    const write = jest.spyOn(server.server.service(Database), 'write');
    try {
      const said = 'what runs for modules could not all be adapted to them; reload once more';
      expect((await server.server.reload(settings([]))).left).not.toContain(said);
      expect(write).not.toHaveBeenCalledWith(expect.anything(), { name: 'module_new_events' });
      jest.spyOn(server.server.service(ModuleServices), 'refresh').mockRejectedValueOnce(new Error('no room'));
      const { left, modules } = await server.server.reload(settings([{ module }]));
      expect(modules.added).toEqual(['probe']);
      expect(left).toContain(said);
      expect((await server.server.reload(settings([{ module }]))).left).not.toContain(said);
      expect((await server.request('GET', '/_synapse/client/probe/files/x')).status).toBe(200);
    } finally {
      write.mockRestore();
      await server.stop();
    }
  });
});
