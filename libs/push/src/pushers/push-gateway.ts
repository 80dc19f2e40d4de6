import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject } from '@rookery/matrix-types';
import { OutboundError, OutboundHttp } from '@rookery/http';
import type { Pusher } from './pusher.js';

/** What came of a request to a push gateway. `rejected`: the gateway knows the key no longer. */
export type GatewayVerdict =
  { readonly kind: 'sent' | 'rejected' } | { readonly kind: 'failed'; readonly reason: string };

const timeoutMs = 30_000;
const maxBytes = 64 * 1024;

/** Speaks to push gateways. @spec push-gateway-api#post_matrixpushv1notify */
@Injectable()
export class PushGateway {
  constructor(private readonly outbound: OutboundHttp) {}

  /** Sends one message. Never rejects. */
  async notify(pusher: Pusher, message: JsonObject, signal: AbortSignal): Promise<GatewayVerdict> {
    const url = pusher.data['url'];
    if (typeof url !== 'string') return { kind: 'rejected' };
    try {
      const answer = await this.outbound.json({ method: 'POST', url, json: message, timeoutMs, maxBytes, signal });
      const rejected = isJsonObject(answer) ? answer['rejected'] : undefined;
      return { kind: Array.isArray(rejected) && rejected.includes(pusher.pushkey) ? 'rejected' : 'sent' };
    } catch (error) {
      if (error instanceof OutboundError) return { kind: 'failed', reason: error.message };
      return { kind: 'failed', reason: String(error) };
    }
  }
}
