import { randomUUID } from 'node:crypto';
import type { Clock } from '../clock.js';
import { LogContext } from '../logging/log-context.js';
import { type LogFields, Logger, type LogLevel } from '../logging/logger.js';

/** Errors that wait to be sent, at most; what comes on top is dropped. */
const maxWaiting = 50;
/** Most reports in a minute: what fails fails often. */
const maxPerMinute = 30;
const timeoutMs = 10_000;
const maxText = 2_000;
const maxFrames = 50;

/** Where reports go, of `https://KEY@HOST/PATH/PROJECT`. @throws Error when it is no such address */
export function parseDsn(dsn: string): { readonly url: string; readonly key: string } {
  const url = URL.canParse(dsn) ? new URL(dsn) : undefined;
  const [, path = '', project] = /^(.*)\/([^/]+)$/.exec(url?.pathname ?? '') ?? [];
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.username === '' || project === undefined)
    throw new Error('expected an address like https://KEY@HOST/PROJECT');
  return { url: `${url.protocol}//${url.host}${path}/api/${project}/envelope/`, key: decodeURIComponent(url.username) };
}

/** Takes out what may be secret: tokens, passwords in addresses, parameters with telling names, long random words. */
export const scrubbed = (text: string): string =>
  text
    .slice(0, maxText)
    .replace(/\b(Bearer|X-Matrix|Basic)\s+\S+/gi, '$1 [hidden]')
    .replace(/\/\/[^\s/@:]+:[^\s/@]+@/g, '//[hidden]@')
    .replace(/((?:token|secret|password|passwd|key|sig|session|code)["']?\s*[=:]\s*["']?)[^\s"'&,;}]+/gi, '$1[hidden]')
    .replace(/\b(?:syt|syr|syl|mct|mat|mcr)_[\w-]+/g, '[hidden]')
    .replace(/[\w+/-]{40,}={0,2}/g, '[hidden]');

interface Report {
  readonly logger: string;
  readonly message: string;
  readonly error: unknown;
  readonly requestId: string | undefined;
  readonly ts: number;
}

/**
 * Sends errors to a service that understands the envelopes of Sentry (Sentry, GlitchTip, Bugsink). Only what failed and where in
 * the code: the sentence of the log, kind, text and stack of the error. No other field of the line, no request, no content, no
 * address; texts are scrubbed of what looks like a secret.
 */
export class ErrorReports {
  readonly #target: ReturnType<typeof parseDsn>;
  readonly #waiting: Report[] = [];
  #sending: Promise<void> | undefined;
  #minute = 0;
  #inMinute = 0;
  #pausedUntilMs = 0;
  readonly #stopping = new AbortController();

  constructor(
    private readonly options: {
      readonly dsn: string;
      readonly environment: string | undefined;
      readonly serverName: string;
      readonly release: string;
    },
    private readonly clock: Clock,
  ) {
    this.#target = parseDsn(options.dsn);
  }

  /** Takes an error to be sent when there is time. Never throws. */
  report(logger: string, message: string, error: unknown): void {
    const nowMs = this.clock.monotonicMs();
    const minute = Math.floor(nowMs / 60_000);
    if (minute !== this.#minute) [this.#minute, this.#inMinute] = [minute, 0];
    if (nowMs < this.#pausedUntilMs || this.#inMinute >= maxPerMinute || this.#waiting.length >= maxWaiting) return;
    this.#inMinute++;
    const requestId = LogContext.current()?.requestId;
    this.#waiting.push({ logger, message, error, requestId, ts: this.clock.nowMs() });
    this.#sending ??= this.#send().finally(() => (this.#sending = undefined));
  }

  /** Gives up what was not sent within a second. */
  async stop(): Promise<void> {
    const late = this.clock.after(1_000, () => this.#stopping.abort());
    await this.#sending;
    late.cancel();
  }

  async #send(): Promise<void> {
    for (let report = this.#waiting.shift(); report !== undefined; report = this.#waiting.shift()) {
      try {
        const answer = await fetch(this.#target.url, {
          method: 'POST',
          headers: {
            'content-type': 'application/x-sentry-envelope',
            'x-sentry-auth': `Sentry sentry_version=7, sentry_client=rookery/1, sentry_key=${this.#target.key}`,
          },
          body: this.#envelope(report),
          redirect: 'error',
          signal: AbortSignal.any([AbortSignal.timeout(timeoutMs), this.#stopping.signal]),
        });
        await answer.body?.cancel();
        if (answer.status === 429) this.#pause(Number(answer.headers.get('retry-after')) || 60);
      } catch {
        // Not into the log: a line about an error that cannot be reported would be reported.
        this.#pause(60);
      }
    }
  }

  #pause(seconds: number): void {
    this.#pausedUntilMs = this.clock.monotonicMs() + Math.min(seconds, 3_600) * 1_000;
    this.#waiting.length = 0;
  }

  #envelope({ logger, message, error, requestId, ts }: Report): string {
    const { environment, serverName, release } = this.options;
    const eventId = randomUUID().replaceAll('-', '');
    const sentAt = new Date(ts).toISOString();
    const failure = error instanceof Error ? error : undefined;
    const event = {
      ...{ event_id: eventId, timestamp: ts / 1_000, platform: 'node', level: 'error', logger, release },
      ...(environment === undefined ? {} : { environment }),
      server_name: serverName,
      tags: { server_name: serverName, ...(requestId === undefined ? {} : { request: requestId.slice(0, 100) }) },
      message: { formatted: scrubbed(message) },
      ...(failure && {
        exception: {
          values: [
            {
              type: failure.name,
              value: scrubbed(failure.message),
              stacktrace: { frames: framesOf(failure.stack ?? '') },
            },
          ],
        },
      }),
    };
    const lines = [{ event_id: eventId, sent_at: sentAt }, { type: 'event', content_type: 'application/json' }, event];
    return `${lines.map((line) => JSON.stringify(line)).join('\n')}\n`;
  }
}

/** The stack, outermost first, by file and line; no source text. */
function framesOf(stack: string): object[] {
  return [...stack.matchAll(/^\s+at (?:(.+?) \()?(?:file:\/\/)?([^()\s]+?):(\d+):(\d+)\)?$/gm)]
    .slice(0, maxFrames)
    .map(([, name, file = '', line, column]) => ({
      function: name ?? '?',
      filename: file.replace(/^.*?\/((?:libs|apps|node_modules)\/)/, '$1'),
      lineno: Number(line),
      colno: Number(column),
      in_app: !/node_modules|^node:/.test(file),
    }))
    .reverse();
}

/** A logger whose errors are reported as well. */
export class ReportingLogger extends Logger {
  constructor(
    private readonly inner: Logger,
    private readonly reports: ErrorReports,
    private readonly name = '',
  ) {
    super();
  }

  debug(message: string, fields?: LogFields): void {
    this.inner.debug(message, fields);
  }
  info(message: string, fields?: LogFields): void {
    this.inner.info(message, fields);
  }
  warn(message: string, fields?: LogFields): void {
    this.inner.warn(message, fields);
  }
  error(message: string, fields?: LogFields): void {
    this.inner.error(message, fields);
    this.reports.report(this.name, message, fields?.['err']);
  }
  isEnabled(level: LogLevel): boolean {
    return this.inner.isEnabled(level);
  }
  child(name: string, fields?: LogFields): Logger {
    const full = this.name === '' ? name : `${this.name}.${name}`;
    return new ReportingLogger(this.inner.child(name, fields), this.reports, full);
  }
}
