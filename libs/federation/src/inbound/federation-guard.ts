import { type CanActivate, type ExecutionContext, Injectable, SetMetadata } from '@nestjs/common';
import type { LateRequest } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import type { ServerResponse } from 'node:http';
import { FederationRateLimiter } from './federation-rate-limiter.js';
import { RequestVerifier } from './request-verifier.js';

/** What the guard leaves on the framework's request. */
export interface SignedRequest {
  inbound: LateRequest;
  /** Who signed it. */
  origin: string;
  /** The body, exactly as it came (`parseJson` of events); `undefined` when there was none. */
  signedContent: JsonObject | undefined;
}

const bodyLimitMetadata = 'rookery:federation-body-limit';
/** Largest body where a route does not say otherwise, bytes: an event with what belongs to it. */
const defaultBodyBytes = 262_144;

/** Says how large the bodies of a route may be, bytes. */
export const BodyLimit = (bytes: number): MethodDecorator & ClassDecorator => SetMetadata(bodyLimitMetadata, bytes);

const unlimitedMetadata = 'rookery:federation-unlimited';

/** Marks a route whose requests are not slowed down: transactions, which come one at a time. */
export const Unlimited = (): MethodDecorator & ClassDecorator => SetMetadata(unlimitedMetadata, true);

const largeAnswerMetadata = 'rookery:federation-large-answer';

/** Marks a route whose answers may be large. */
export const LargeAnswer = (): MethodDecorator & ClassDecorator => SetMetadata(largeAnswerMetadata, true);

/** Lets requests pass that carry the signature of their server; reads their bodies, once there is a key to check them with. */
@Injectable()
export class FederationGuard implements CanActivate {
  constructor(
    private readonly verifier: RequestVerifier,
    private readonly limiter: FederationRateLimiter,
  ) {}

  async canActivate(context: ExecutionContext): Promise<true> {
    const request = context.switchToHttp().getRequest<SignedRequest>();
    const bodyLimit =
      (Reflect.getMetadata(bodyLimitMetadata, context.getHandler()) as number | undefined) ?? defaultBodyBytes;
    const { origin, content } = await this.verifier.verify(request.inbound, bodyLimit);
    request.origin = origin;
    request.signedContent = content;
    if (Reflect.getMetadata(unlimitedMetadata, context.getHandler()) !== true) {
      const leave = await this.limiter.enter(origin, request.inbound.signal);
      const { raw } = context.switchToHttp().getResponse<{ raw: ServerResponse }>();
      if (raw.closed) leave();
      else raw.once('close', leave);
    }
    if (Reflect.getMetadata(largeAnswerMetadata, context.getHandler()) === true) await request.inbound.takeTurn();
    return true;
  }
}
