import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import type { InboundRequest } from '@rookery/http';
import type { JsonObject } from '@rookery/matrix-types';
import { RequestVerifier } from './request-verifier.js';

/** Lets requests pass that carry the signature of their server; stands behind the guard that reads bodies. */
@Injectable()
export class FederationGuard implements CanActivate {
  constructor(private readonly verifier: RequestVerifier) {}

  async canActivate(context: ExecutionContext): Promise<true> {
    const request = context
      .switchToHttp()
      .getRequest<{ inbound: InboundRequest; origin: string; signedContent: JsonObject | undefined }>();
    const { origin, content } = await this.verifier.verify(request.inbound);
    request.origin = origin;
    request.signedContent = content;
    return true;
  }
}
