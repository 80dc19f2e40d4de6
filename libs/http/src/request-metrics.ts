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
}

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
    private readonly openNow: () => Iterable<{ readonly method: string; readonly servlet: string | undefined }>,
  ) {}

  /** Counts a finished request. */
  record(method: string, servlet: string, code: number, elapsedMs: number, bytes: number): void {
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
      };
      codes.set(code, series);
    }
    const seconds = elapsedMs / 1000;
    series.seconds += seconds;
    series.count++;
    series.bytes += bytes;
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
    for (const codes of this.#series.values()) {
      let count = 0;
      let bytes = 0;
      let labels = '';
      for (const series of codes.values()) {
        labels = `method="${series.method}",servlet="${label(series.servlet)}"`;
        count += series.count;
        bytes += series.bytes;
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
      sizes.push(`synapse_http_server_response_size_total{${labels},tag="",${server}} ${bytes}`);
    }
    const open = new Map<string, number>();
    for (const { method, servlet } of this.openNow()) {
      const labels = `method="${knownMethods.has(method) ? method : 'OTHER'}",servlet="${label(servlet ?? 'unrecognized')}"`;
      open.set(labels, (open.get(labels) ?? 0) + 1);
    }
    const family = (name: string, type: string, help: string, lines: readonly string[]): string[] =>
      lines.length === 0 ? [] : [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
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
    ];
    return lines.length === 0 ? '' : `${lines.join('\n')}\n`;
  }
}
