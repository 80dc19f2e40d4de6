import { applyDecorators, createParamDecorator, type ExecutionContext, UseGuards } from '@nestjs/common';
import { Access, type AccessOptions, type InboundRequest } from '@rookery/http';
import { type JsonObject, MatrixError } from '@rookery/matrix-types';
import { FederationGuard } from './federation-guard.js';

/** What the guard leaves on the framework's request. */
export interface SignedRequest {
  inbound: InboundRequest;
  /** Who signed it. */
  origin: string;
  /** The body, exactly as it came (`parseJson` of events); `undefined` when there was none. */
  signedContent: JsonObject | undefined;
}

const signed = (context: ExecutionContext): SignedRequest => context.switchToHttp().getRequest<SignedRequest>();

/**
 * Declares a route for other servers: its requests carry their server's signature, or are refused with 401
 * `M_UNAUTHORIZED` (403 `M_FORBIDDEN` for a server that the settings do not allow).
 */
export const FederationAccess = (
  options: Pick<AccessOptions, 'bodyLimitBytes'> = {},
): MethodDecorator & ClassDecorator =>
  applyDecorators(Access({ ...options, auth: 'none' }), UseGuards(FederationGuard));

/** Injects the name of the server that signed the request. */
export const Origin = createParamDecorator((_: unknown, context: ExecutionContext) => signed(context).origin);

/**
 * Injects the signed body. Numbers that are not canonical come as `NumberText`.
 * @throws MatrixError 400 `M_NOT_JSON` when there is none
 */
export const SignedContent = createParamDecorator((_: unknown, context: ExecutionContext): JsonObject => {
  const { signedContent } = signed(context);
  if (signedContent === undefined) throw new MatrixError(400, 'M_NOT_JSON', 'A JSON body is required');
  return signedContent;
});
