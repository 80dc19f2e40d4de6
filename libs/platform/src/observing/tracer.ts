import { randomBytes } from 'node:crypto';
import type { Clock } from '../clock.js';
import type { Config } from '../config/config.js';
import type { SpanAttributes, SpanKind, Spans } from '../logging/log-context.js';
import type { Logger } from '../logging/logger.js';

/** Spans of one trace, at most; what comes on top is left out. */
const maxSpans = 300;
/** Spans that wait to be sent, at most. */
const maxWaiting = 5_000;
const maxInBatch = 500;
const sendEveryMs = 2_000;
const timeoutMs = 10_000;
/** Where a collector takes spans by HTTP unless told. */
const defaultPort = 4318;

const kinds: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3 };

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  readonly name: string;
  readonly kind: SpanKind;
  readonly startMs: number;
  readonly durationMs: number;
  readonly attributes: SpanAttributes;
  readonly failed: boolean;
}

/** One request or task being traced, with what was done for it. */
export class Trace implements Spans {
  readonly spanId = randomBytes(8).toString('hex');
  readonly #spans: Span[] = [];

  /** @param isSampled whether it is sent when nothing else asks for that at its end */
  constructor(
    readonly traceId: string,
    private readonly isSampled: boolean,
    private readonly clock: Clock,
    private readonly send: (spans: readonly Span[]) => void,
    private readonly trusts: (serverName: string) => boolean,
  ) {}

  record(name: string, kind: SpanKind, durationMs: number, attributes: SpanAttributes = {}): void {
    if (this.#spans.length < maxSpans) this.#spans.push(this.#span(name, kind, durationMs, attributes, false));
  }

  /** Ends the whole. @param force sends it also where it was not sampled */
  end(
    name: string,
    kind: SpanKind,
    durationMs: number,
    attributes: SpanAttributes,
    failed: boolean,
    force = false,
  ): void {
    if (!this.isSampled && !force) return;
    const root = {
      ...this.#span(name, kind, durationMs, attributes, failed),
      spanId: this.spanId,
      parentSpanId: undefined,
    };
    this.send([root, ...this.#spans]);
  }

  headersFor(serverName: string): Readonly<Record<string, string>> {
    if (!this.trusts(serverName)) return {};
    const flag = this.isSampled ? '1' : '0';
    return {
      traceparent: `00-${this.traceId}-${this.spanId}-0${flag}`,
      'uber-trace-id': `${this.traceId}:${this.spanId}:0:${flag}`,
    };
  }

  #span(name: string, kind: SpanKind, durationMs: number, attributes: SpanAttributes, failed: boolean): Span {
    const spanId = randomBytes(8).toString('hex');
    const startMs = this.clock.nowMs() - durationMs;
    return {
      traceId: this.traceId,
      spanId,
      parentSpanId: this.spanId,
      name,
      kind,
      startMs,
      durationMs,
      attributes,
      failed,
    };
  }
}

/**
 * Sends spans to a collector by the protocol of OpenTelemetry (OTLP, JSON over HTTP), which Jaeger takes at port 4318. Made only
 * where `opentracing.enabled` is set. A collector that is away costs spans, never the server.
 */
export class Tracer {
  readonly #sample: () => boolean;
  readonly #forcedUsers: ReadonlySet<string>;
  readonly #waiting: Span[] = [];
  #timer: ReturnType<Clock['after']> | undefined;
  #sending: Promise<void> | undefined;
  #hasWarned = false;
  readonly #url: string;
  readonly #servers: readonly RegExp[];

  constructor(
    private readonly config: Config,
    private readonly clock: Clock,
    private readonly logger: Logger,
  ) {
    const jaeger = section(config.get('opentracing.jaeger_config'));
    this.#sample = samplerOf(section(jaeger['sampler']), clock);
    this.#forcedUsers = new Set(config.get('opentracing.force_tracing_for_users'));
    this.#servers = config.get('opentracing.homeserver_whitelist').map((text) => new RegExp(`^(?:${text})$`));
    this.#url = collectorOf(jaeger);
  }

  begin(): Trace {
    const id = randomBytes(16).toString('hex');
    const take = (spans: readonly Span[]): void => this.#take(spans);
    return new Trace(id, this.#sample(), this.clock, take, (name) => this.#servers.some((one) => one.test(name)));
  }

  /** Whether requests of a user are traced in any case. */
  isForced(userId: string | undefined): boolean {
    return userId !== undefined && this.#forcedUsers.has(userId);
  }

  /** Sends what waits, for a second at most. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    const late = new Promise<void>((resolve) => this.clock.after(1_000, resolve));
    await Promise.race([this.#flush(), late]);
  }

  #take(spans: readonly Span[]): void {
    if (this.#waiting.length + spans.length > maxWaiting) return;
    this.#waiting.push(...spans);
    this.#timer ??= this.clock.after(sendEveryMs, () => {
      this.#timer = undefined;
      void this.#flush();
    });
  }

  async #flush(): Promise<void> {
    await this.#sending;
    this.#sending = this.#send();
    await this.#sending;
  }

  async #send(): Promise<void> {
    while (this.#waiting.length > 0) {
      const spans = this.#waiting.splice(0, maxInBatch);
      try {
        const answer = await fetch(this.#url, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(this.#body(spans)),
          signal: AbortSignal.timeout(timeoutMs),
        });
        await answer.body?.cancel();
        if (!answer.ok) throw new Error(`status ${answer.status}`);
      } catch (error) {
        if (!this.#hasWarned)
          this.logger.warn('Spans cannot be sent to the collector', { url: this.#url, reason: String(error) });
        this.#hasWarned = true;
        return;
      }
    }
  }

  #body(spans: readonly Span[]): object {
    const nanos = (ms: number): string => `${Math.round(ms * 1_000)}000`;
    return {
      resourceSpans: [
        {
          resource: { attributes: attributesOf({ 'service.name': `${this.config.serverName} rookery` }) },
          scopeSpans: [
            {
              scope: { name: 'rookery' },
              spans: spans.map((span) => ({
                ...{ traceId: span.traceId, spanId: span.spanId, name: span.name, kind: kinds[span.kind] },
                ...(span.parentSpanId === undefined ? {} : { parentSpanId: span.parentSpanId }),
                startTimeUnixNano: nanos(span.startMs),
                endTimeUnixNano: nanos(span.startMs + span.durationMs),
                attributes: attributesOf(span.attributes),
                status: span.failed ? { code: 2 } : {},
              })),
            },
          ],
        },
      ],
    };
  }
}

type Section = Readonly<Record<string, unknown>>;
const section = (value: unknown): Section =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Section) : {};

function attributesOf(attributes: SpanAttributes): object[] {
  return Object.entries(attributes).flatMap(([key, value]): object[] => {
    if (value === undefined) return [];
    if (typeof value === 'boolean') return [{ key, value: { boolValue: value } }];
    return [{ key, value: typeof value === 'number' ? { doubleValue: value } : { stringValue: value } }];
  });
}

/** Jaeger's samplers: `const` (0 or 1), `probabilistic` (a share), `ratelimiting` (so many a second). One in a thousand unless told. */
function samplerOf({ type, param }: Section, clock: Clock): () => boolean {
  const number = typeof param === 'number' ? param : 0.001;
  if (type === 'const') return () => number > 0;
  if (type === 'ratelimiting') {
    let [tokens, lastMs] = [number, clock.monotonicMs()];
    return () => {
      const nowMs = clock.monotonicMs();
      tokens = Math.min(Math.max(number, 1), tokens + ((nowMs - lastMs) / 1_000) * number);
      lastMs = nowMs;
      if (tokens < 1) return false;
      tokens--;
      return true;
    };
  }
  return () => randomBytes(4).readUInt32BE() / 2 ** 32 < number;
}

/** `otlp_endpoint`, else the machine of Jaeger's agent, whose own port for UDP is a thing of the past. */
function collectorOf(jaeger: Section): string {
  const own = jaeger['otlp_endpoint'];
  if (typeof own === 'string') return `${own.replace(/\/(?:v1\/traces\/?)?$/, '')}/v1/traces`;
  const { reporting_host: host = 'localhost' } = section(jaeger['local_agent']);
  return `http://${String(host)}:${defaultPort}/v1/traces`;
}
