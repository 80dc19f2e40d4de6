import type { DatabaseCost } from '@rookery/platform';

/** Upper bounds of the latency histogram, seconds. */
const buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30] as const;

interface Series {
  readonly method: string;
  readonly servlet: string;
  readonly code: number;
  readonly counts: number[];
  seconds: number;
  count: number;
  bytes: number;
  readonly cost: DatabaseCost;
}

const noCost = (): DatabaseCost => ({ transactions: 0, durationMs: 0, waitMs: 0 });

function add(sum: DatabaseCost, cost: DatabaseCost): void {
  sum.transactions += cost.transactions;
  sum.durationMs += cost.durationMs;
  sum.waitMs += cost.waitMs;
}

/** The names behind `synapse_http_server_response_` and `synapse_http_server_in_flight_requests_`. */
const costs: readonly (readonly [name: string, help: string, of: (cost: DatabaseCost) => number])[] = [
  ['db_txn_count', 'Transactions and single reads', (cost) => cost.transactions],
  ['db_txn_duration_seconds', 'Time in transactions and single reads', (cost) => cost.durationMs / 1000],
  ['db_sched_duration_seconds', 'Time waiting for the database', (cost) => cost.waitMs / 1000],
];

/** Codes and methods a client can make up must not make up series. */
const knownMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH']);

const label = (value: string): string => value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');

/**
 * Counts of requests by endpoint. Recording is a few additions; the text is made when somebody scrapes. The names are those
 * the field's dashboards know.
 */
export class RequestMetrics {
  readonly #series = new Map<string, Map<number, Series>>();

  /** @param openNow the requests under way; asked at a scrape */
  constructor(
    private readonly serverName: string,
    private readonly openNow: () => Iterable<{
      readonly method: string;
      readonly servlet: string | undefined;
      readonly cost: DatabaseCost;
    }>,
  ) {}

  /** Counts a finished request. */
  record(method: string, servlet: string, code: number, elapsedMs: number, bytes: number, cost: DatabaseCost): void {
    const verb = knownMethods.has(method) ? method : 'OTHER';
    const key = `${verb} ${servlet}`;
    let codes = this.#series.get(key);
    if (codes === undefined) this.#series.set(key, (codes = new Map()));
    let series = codes.get(code);
    if (series === undefined) {
      series = {
        method: verb,
        servlet,
        code,
        counts: new Array<number>(buckets.length).fill(0),
        seconds: 0,
        count: 0,
        bytes: 0,
        cost: noCost(),
      };
      codes.set(code, series);
    }
    const seconds = elapsedMs / 1000;
    series.seconds += seconds;
    series.count++;
    series.bytes += bytes;
    add(series.cost, cost);
    for (let i = 0; i < buckets.length; i++) {
      if (seconds <= buckets[i]!) {
        series.counts[i]!++;
        break;
      }
    }
  }

  /** The Prometheus text of all series. */
  expose(): string {
    const server = `server_name="${label(this.serverName)}"`;
    const requests: string[] = [];
    const counts: string[] = [];
    const sizes: string[] = [];
    const times: string[] = [];
    const responses = new Map<string, number>();
    const answered = new Map<string, DatabaseCost>();
    for (const codes of this.#series.values()) {
      const cost = noCost();
      let count = 0;
      let bytes = 0;
      let labels = '';
      for (const series of codes.values()) {
        labels = `method="${series.method}",servlet="${label(series.servlet)}"`;
        count += series.count;
        bytes += series.bytes;
        add(cost, series.cost);
        const responseKey = `method="${series.method}",code="${series.code}"`;
        responses.set(responseKey, (responses.get(responseKey) ?? 0) + series.count);
        const timed = `${labels},tag="",code="${series.code}",${server}`;
        let below = 0;
        buckets.forEach((bound, i) => {
          below += series.counts[i]!;
          times.push(`synapse_http_server_response_time_seconds_bucket{${timed},le="${bound}"} ${below}`);
        });
        times.push(
          `synapse_http_server_response_time_seconds_bucket{${timed},le="+Inf"} ${series.count}`,
          `synapse_http_server_response_time_seconds_sum{${timed}} ${series.seconds}`,
          `synapse_http_server_response_time_seconds_count{${timed}} ${series.count}`,
        );
      }
      requests.push(`synapse_http_server_requests_received_total{${labels},${server}} ${count}`);
      counts.push(`synapse_http_server_response_count_total{${labels},tag="",${server}} ${count}`);
      answered.set(labels, cost);
      sizes.push(`synapse_http_server_response_size_total{${labels},tag="",${server}} ${bytes}`);
    }
    const open = new Map<string, number>();
    // What runs counts here at once, and is not taken away when it is answered: the numbers only go up.
    const running = new Map([...answered].map(([labels, cost]) => [labels, { ...cost }]));
    for (const { method, servlet, cost } of this.openNow()) {
      const labels = `method="${knownMethods.has(method) ? method : 'OTHER'}",servlet="${label(servlet ?? 'unrecognized')}"`;
      open.set(labels, (open.get(labels) ?? 0) + 1);
      const sum = running.get(labels) ?? noCost();
      running.set(labels, sum);
      add(sum, cost);
    }
    const family = (name: string, type: string, help: string, lines: readonly string[]): string[] =>
      lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
    const costLines = (prefix: string, more: string, of: ReadonlyMap<string, DatabaseCost>): string[] =>
      costs.flatMap(([name, help, value]) => {
        const full = `synapse_http_server_${prefix}_${name}_total`;
        const values = [...of].map(([labels, cost]) => `${full}{${labels}${more},${server}} ${value(cost)}`);
        return family(full, 'counter', help, values);
      });
    const lines = [
      ...family('synapse_http_server_requests_received_total', 'counter', 'Requests received', requests),
      ...family('synapse_http_server_response_count_total', 'counter', 'Requests answered', counts),
      ...family('synapse_http_server_response_size_total', 'counter', 'Bytes of the answers', sizes),
      ...family('synapse_http_server_response_time_seconds', 'histogram', 'Time until the answer was out', times),
      ...family(
        'synapse_http_server_responses_total',
        'counter',
        'Answers by status',
        [...responses].map(([labels, count]) => `synapse_http_server_responses_total{${labels},${server}} ${count}`),
      ),
      ...family(
        'synapse_http_server_in_flight_requests_count',
        'gauge',
        'Requests under way',
        [...open].map(
          ([labels, count]) => `synapse_http_server_in_flight_requests_count{${labels},${server}} ${count}`,
        ),
      ),
      ...costLines('response', ',tag=""', answered),
      ...costLines('in_flight_requests', '', running),
    ];
    return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
  }
}
