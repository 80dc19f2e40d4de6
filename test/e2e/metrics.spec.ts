import { readFileSync } from 'node:fs';
import { createTestHomeserver, eventually, type TestHomeserver } from '@rookery/testing';
import { metricTable } from '@rookery/platform';
import { acting, FakeService, RegistrationFiles } from './appservices/support.js';
import { createRoom, databases, join, say } from './rooms/rooms-client.js';

/** Why nobody fills some of the names that dashboards know; each name begins with what stands here. */
const unfilled: Readonly<Record<string, string>> = {
  synapse_http_server_response_ru_: 'requests take turns on one thread: nothing tells whose the processor time was',
  synapse_http_server_in_flight_requests_ru_: 'the same',
  synapse_background_process_ru_: 'tasks take turns on one thread with everything else',
  synapse_util_metrics_block_: 'no blocks are measured: a profiler tells more',
  synapse_util_caches_response_cache: 'no cache of whole answers counts its look-ups',
  synapse_util_caches_cache_pending: 'no cache counts look-ups that wait',
  synapse_external_cache_: 'there is no cache beside the process',
  synapse_replication_tcp_:
    'processes hear of each other by Redis, which counts what it carries; positions say the rest',
  synapse_outgoing_replication_requests: 'requests that are passed on are counted where they are answered',
  synapse_pending_outgoing_replication_requests: 'the same',
  synapse_threadpool_: 'there are no pools of threads',
  synapse_util_batching_queue_: 'there are no such queues',
  synapse_storage_events_: 'state is not worked out by the shortcuts that these tell apart',
  synapse_forward_extremities: 'it would read all rooms',
  synapse_excess_extremity_events: 'it would read all rooms',
  synapse_event_fetch_ongoing: 'events are read where they are needed, without a queue',
  synapse_federation_backfill_processing_: 'not timed apart from the request',
  synapse_federation_send_queue_: 'EDUs go to the queues of their servers at once: see the pending ones',
  synapse_push_bulk_push_rule_evaluator_: 'rules are kept by user, not by room',
  synapse_notifier_rooms: 'what waits is kept by user',
  synapse_handler_presence_timers_fired: 'presence is looked at in rounds, without timers',
  synapse_handlers_presence_wheel_timer_size: 'the same',
  synapse_handler_presence_bump_active_time: 'noted in memory only',
  synapse_handler_presence_get_updates: 'changes are read from the board, whoever asks',
  synapse_handler_presence_notify_reason: 'a round does not keep the reasons',
  synapse_handler_presence_state_transition: 'the same',
  synapse_threepid_send_requests_with_tries: 'tries are not kept',
  synapse_handlers_sync_nonempty_total: 'requests by endpoint tell of syncs',
  synapse_room_message_list_rest_servlet_response_time_seconds: 'rooms are not told apart by size',
  synapse_api_auth_delegated_introspection_response: 'requests sent are counted together',
  // There where they are switched on only.
  synapse_federation_known_servers: 'where metrics_flags asks for it',
  synapse_util_caches_cache_size_bytes: 'where caches.track_memory_usage asks for it',
  synapse_admin_mau_: 'where monthly active users are counted',
};

const reasonOf = (name: string): string | undefined => Object.keys(unfilled).find((prefix) => name.startsWith(prefix));

describe.each(databases)('the metrics of a server (%s)', (database) => {
  const files = new RegistrationFiles();
  let service: FakeService;
  let homeserver: TestHomeserver;
  const page = async (): Promise<string> => (await fetch(`${homeserver.baseUrl}/_synapse/metrics`)).text();
  const sum = (text: string, start: string): number =>
    text
      .split('\n')
      .filter((line) => line.startsWith(start))
      .reduce((total, line) => total + Number(line.slice(line.lastIndexOf(' '))), 0);

  beforeAll(async () => {
    service = await FakeService.start();
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
      },
    });
    const bot = acting(homeserver, 'irc');
    await say(bot, await createRoom(bot), 'told');
    await eventually(() => service.texts.includes('told'));
  });
  afterAll(async () => {
    await homeserver?.stop();
    await service?.down();
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
    expect(Object.keys(unfilled).filter((prefix) => !needed.has(prefix))).toEqual([]);
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

  it('tell what is done in the background', async () => {
    const name = 'name="write_client_activity"';
    await eventually(async () => sum(await page(), `synapse_background_process_start_count_total{${name}`) > 0);
    expect(await page()).toContain(`synapse_background_process_in_flight_count{${name}`);
    await eventually(async () => sum(await page(), `synapse_background_process_db_txn_count_total{${name}`) > 0);
  });
});
