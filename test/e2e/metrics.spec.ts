import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createTestHomeserver, eventually, type TestHomeserver } from '@rookery/testing';
import { metricTable } from '@rookery/platform';
import { startMailServer, type MailServer } from './accounts/support.js';
import { acting, FakeService, RegistrationFiles } from './appservices/support.js';
import { createRoom, databases, join, say } from './rooms/rooms-client.js';
import { shownMetric } from '../support/shown-metric.js';

/** Why nobody fills some of the names that dashboards know, as operators read it; each name begins with what stands here. */
const unfilled = new Map(
  [...readFileSync('docs/operators/monitoring.md', 'utf8').matchAll(/^\| `(synapse_\w+?)…?` \| (.+) \|$/gm)].map(
    ([, prefix = '', reason = '']) => [prefix, reason] as const,
  ),
);

const reasonOf = (name: string): string | undefined => [...unfilled.keys()].find((prefix) => name.startsWith(prefix));

describe.each(databases)('the metrics of a server (%s)', (database) => {
  const files = new RegistrationFiles();
  let service: FakeService;
  let mail: MailServer;
  let homeserver: TestHomeserver;
  const page = async (): Promise<string> => (await fetch(`${homeserver.baseUrl}/_synapse/metrics`)).text();
  const sum = (text: string, start: string): number =>
    text
      .split('\n')
      .filter((line) => line.startsWith(start))
      .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(' '))), 0);

  beforeAll(async () => {
    service = await FakeService.start();
    mail = await startMailServer();
    homeserver = await createTestHomeserver({
      database,
      settings: {
        enable_metrics: true,
        federation_metrics_domains: ['elsewhere.test'],
        listeners: [
          {
            port: 0,
            bind_addresses: ['127.0.0.1'],
            type: 'http',
            resources: [{ names: ['client', 'federation', 'metrics'] }],
          },
        ],
        app_service_config_files: [files.write('irc', { url: service.url })],
        email: { smtp_host: '127.0.0.1', smtp_port: mail.port, notif_from: 'noreply@rookery.test' },
      },
    });
    const bot = acting(homeserver, 'irc');
    await say(bot, await createRoom(bot), 'told');
    await eventually(() => service.texts.includes('told'));
  });
  afterAll(async () => {
    await homeserver?.stop();
    await service?.down();
    await mail?.stop();
    files.remove();
  });

  it('are all those of the table for whose absence there is no reason', async () => {
    const shown = new Set(
      [...(await page()).matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name.replace(/_total$/, '')),
    );
    const absent = Object.keys(metricTable).filter((name) => !shown.has(name.replace(/_total$/, '')));
    expect(absent.filter((name) => reasonOf(name) === undefined)).toEqual([]);
    // A reason goes once nothing needs it.
    const needed = new Set(absent.map(reasonOf));
    expect([...unfilled.keys()].filter((prefix) => !needed.has(prefix))).toEqual([]);
  });

  it('are what the dashboard and the alerts for operators look at', async () => {
    // A counter's line ends in _total, a histogram's in _bucket: the name is told once, before them.
    const told = new Set([...(await page()).matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name));
    for (const file of ['grafana-dashboard.json', 'prometheus-rules.yaml']) {
      const text = readFileSync(`docs/operators/monitoring/${file}`, 'utf8');
      const names = [...text.matchAll(/\b(?:synapse|process|nodejs)_[a-z0-9_]+/g)].map(([name]) => name);
      const unknown = names.filter((name) => !told.has(name) && !told.has(name.replace(/_(?:bucket|sum|count)$/, '')));
      expect([file, names.length > 10, [...new Set(unknown)]]).toEqual([file, true, []]);
    }
  });

  it('tell what requests cost the database, and how long statements take', async () => {
    const [alice, bob] = [await homeserver.registerUser('alice'), await homeserver.registerUser('bob')];
    const roomId = await createRoom(alice, { preset: 'public_chat' });
    await join(bob, roomId);
    let since = '';
    // Presence is told a little later than it changes, and would end the wait.
    await eventually(async () => {
      const next = (await bob.request('GET', `/sync?timeout=500${since && `&since=${since}`}`)).body['next_batch'];
      const isQuiet = next === since;
      since = String(next);
      return isQuiet;
    });
    const waiting = bob.request('GET', `/sync?timeout=30000&since=${since}`);
    await eventually(async () => sum(await page(), 'synapse_notifier_listeners{') === 1);
    const before = await page();
    await say(alice, roomId, 'counted');
    await waiting;
    const servlet = /synapse_http_server_response_count_total\{(method="PUT",servlet="Send[^"]*")/;
    await eventually(async () => servlet.test(await page()));
    const after = await page();
    const labels = servlet.exec(after)?.[1] ?? '';
    for (const name of ['db_txn_count', 'db_txn_duration_seconds', 'db_sched_duration_seconds']) {
      const start = `synapse_http_server_response_${name}_total{${labels}`;
      expect([name, sum(after, start) > (name.includes('sched') ? -1 : 0)]).toEqual([name, true]);
      expect(sum(after, `synapse_http_server_in_flight_requests_${name}_total{${labels}`)).toBeGreaterThanOrEqual(
        sum(after, start),
      );
    }
    for (const start of [
      'synapse_storage_query_time_count{verb="SELECT"',
      'synapse_storage_transaction_time_count_total{',
      'synapse_storage_schedule_time_count',
      'synapse_notifier_users_woken_by_stream_total{',
      'synapse_notifier_notified_events_total',
      'synapse_storage_events_persisted_events_sep_total{',
    ])
      expect([start, sum(after, start) > sum(before, start)]).toEqual([start, true]);
  });

  it('tell of forks, syncs, presence and mails', async () => {
    const carol = await homeserver.registerUser('carol');
    const before = await page();
    const { body } = await carol.request('GET', '/sync');
    await carol.request('GET', `/sync?since=${String(body['next_batch'])}`);
    const roomId = await createRoom(carol);
    await say(carol, roomId, 'one after the other');
    await carol.request('PUT', `/rooms/${encodeURIComponent(roomId)}/typing/${carol.userId}`, { typing: false });
    const lazy = encodeURIComponent(JSON.stringify({ room: { state: { lazy_load_members: true } } }));
    const later = await carol.request('GET', `/sync?filter=${lazy}&since=${String(body['next_batch'])}`);
    await carol.request('GET', `/sync?full_state=true&since=${String(later.body['next_batch'])}`);
    const wish = { client_secret: 'secret', email: 'carol@example.org', send_attempt: 3 };
    expect((await carol.request('POST', '/account/3pid/email/requestToken', wish)).status).toBe(200);
    const grown = (text: string, start: string): number => sum(text, start) - sum(before, start);
    const nonEmpty = 'synapse_handlers_sync_nonempty_total{type=';
    const [transitions, reasons] = [
      'synapse_handler_presence_state_transition_total{locality="local",from="offline",to="online"',
      'synapse_handler_presence_notify_reason_total{locality="local",reason="state_change"',
    ];
    // What it is told of its presence may come with a sync or after it.
    await eventually(async () => grown(await page(), transitions) >= 1);
    const after = await page();
    expect(grown(after, reasons)).toBeGreaterThanOrEqual(1);
    expect(grown(after, `${nonEmpty}"initial_sync",lazy_loaded="false"`)).toBe(1);
    expect(grown(after, `${nonEmpty}"incremental_sync",lazy_loaded="true"`)).toBe(1);
    expect(grown(after, `${nonEmpty}"full_state_sync",lazy_loaded="false"`)).toBe(1);
    expect(grown(after, 'synapse_threepid_send_requests_with_tries_sum{type="email",reason="add_threepid"')).toBe(3);
    // Each batch of events leaves one, and leaves none of those before it in place.
    const batches = grown(after, 'synapse_storage_events_forward_extremities_persisted_count');
    expect(batches).toBeGreaterThanOrEqual(2);
    expect(grown(after, 'synapse_storage_events_forward_extremities_persisted_sum')).toBe(batches);
    expect(grown(after, 'synapse_storage_events_stale_forward_extremities_persisted_count')).toBe(batches);
    expect(grown(after, 'synapse_storage_events_stale_forward_extremities_persisted_sum')).toBe(0);
    const [worked, single] = ['', '_single_event'].map((way) =>
      grown(after, `synapse_storage_events_state_delta${way}_total`),
    );
    expect(single).toBeGreaterThanOrEqual(1);
    expect(worked).toBeGreaterThanOrEqual(single!);
    expect(grown(after, 'synapse_storage_events_state_resolutions_during_persistence_total')).toBe(0);
    expect(grown(after, 'synapse_handler_presence_get_updates_total{type="full"')).toBeGreaterThanOrEqual(1);
    expect(grown(after, 'synapse_handler_presence_bump_active_time_total')).toBeGreaterThanOrEqual(1);
    for (const reason of ['size', 'time', 'invalidation'])
      expect(after).toMatch(
        new RegExp(`^synapse_util_caches_cache_evicted_size\\{name="\\w+",reason="${reason}"`, 'm'),
      );
    const rooms = (le: string): number => sum(after, `synapse_forward_extremities_bucket{le="${le}"`);
    expect(rooms('1')).toBeGreaterThanOrEqual(1);
    expect(rooms('+Inf')).toBe(rooms('1'));
    const answers = (name: string): number => sum(after, `synapse_util_caches_response_cache${name}{name="sync"`);
    expect(answers('')).toBeGreaterThanOrEqual(2);
    expect([answers('_hits'), answers('_size')]).toEqual([0, 0]);
  });

  it('tell what is done in the background', async () => {
    const name = 'name="write_client_activity"';
    await eventually(async () => sum(await page(), `synapse_background_process_start_count_total{${name}`) > 0);
    expect(await page()).toContain(`synapse_background_process_in_flight_count{${name}`);
    await eventually(async () => sum(await page(), `synapse_background_process_db_txn_count_total{${name}`) > 0);
  });
});

it('tells how long the service took that authenticates users', async () => {
  const service = createServer((request, response) => {
    const isRight = request.headers.authorization === 'Bearer secret';
    response.writeHead(isRight ? 200 : 401, { 'content-type': 'application/json' }).end('{"active":false}');
  });
  await new Promise<void>((resolve) => service.listen(0, '127.0.0.1', resolve));
  const endpoint = `http://127.0.0.1:${(service.address() as AddressInfo).port}/`;
  const resources = [{ names: ['client', 'metrics'] }];
  const homeserver = await createTestHomeserver({
    settings: {
      ...{ enable_metrics: true, public_baseurl: 'https://rookery.test/' },
      ...{ enable_registration: false, enable_registration_without_verification: false },
      listeners: [{ port: 0, bind_addresses: ['127.0.0.1'], type: 'http', resources }],
      matrix_authentication_service: { enabled: true, endpoint, secret: 'secret' },
    },
  });
  try {
    const asked = (code: string): Promise<number> =>
      shownMetric(homeserver.baseUrl, 'synapse_api_auth_delegated_introspection_response_count', `code="${code}"`);
    expect((await homeserver.request('GET', '/account/whoami', undefined, 'unknown')).status).toBe(401);
    expect([await asked('200'), await asked('ERR')]).toEqual([1, 0]);
    service.closeAllConnections();
    await new Promise((resolve) => service.close(resolve));
    expect((await homeserver.request('GET', '/account/whoami', undefined, 'another')).status).toBe(503);
    expect([await asked('200'), await asked('ERR')]).toEqual([1, 1]);
  } finally {
    await homeserver.stop();
    service.close();
  }
});
