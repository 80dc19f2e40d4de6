import { applyDecorators, createParamDecorator, type ExecutionContext, UseGuards } from '@nestjs/common';
import { Access, compileSchema, type Schema, takesBody } from '@rookery/http';
import { MatrixError } from '@rookery/matrix-types';
import { BodyLimit, FederationGuard, LargeAnswer, type SignedRequest, Unlimited } from './federation-guard.js';

/** How a route for other servers differs from the usual. */
export interface FederationAccessOptions {
  /** Largest body accepted, bytes; default 262,144. */
  readonly bodyLimitBytes?: number;
  /** Not slowed down, however fast requests come (`rc_federation`). Default false. */
  readonly unlimited?: boolean;
  /** The answer may be large: only a few of those are made at once for one server, and none while it leaves too much unread. Default false. */
  readonly largeAnswer?: boolean;
}

const signed = (context: ExecutionContext): SignedRequest => context.switchToHttp().getRequest<SignedRequest>();

/**
 * Declares a route for other servers: its requests carry their server's signature, or are refused with 401
 * `M_UNAUTHORIZED` (403 `M_FORBIDDEN` for a server that the settings do not allow, 429 `M_LIMIT_EXCEEDED` for one that asks
 * for too much at once).
 */
export const FederationAccess = ({
  unlimited,
  bodyLimitBytes,
  largeAnswer,
}: FederationAccessOptions = {}): MethodDecorator =>
  applyDecorators(
    Access({ auth: 'none', lateBody: true }),
    UseGuards(FederationGuard),
    ...(bodyLimitBytes === undefined ? [] : [BodyLimit(bodyLimitBytes)]),
    ...(unlimited === true ? [Unlimited()] : []),
    ...(largeAnswer === true ? [LargeAnswer()] : []),
  );

/** Injects the name of the server that signed the request. */
export const Origin = createParamDecorator((_: unknown, context: ExecutionContext) => signed(context).origin);

/**
 * Injects the signed body, checked with `schema`; numbers that are not canonical come as `NumberText`. The parameter's type is
 * `Infer<typeof schema>`, and docs/bodies.md says what is in it. An event is checked by what reads it, and no key is taken from it.
 * @throws MatrixError 400 `M_NOT_JSON` when there is none, and as `JsonBody` of libs/http
 */
export function SignedContent(schema: Schema<object>): ParameterDecorator {
  const check = compileSchema(schema);
  const inject = createParamDecorator((_: unknown, context: ExecutionContext): object => {
    const { signedContent } = signed(context);
    if (signedContent === undefined) throw MatrixError.missingBody();
    return check(signedContent);
  });
  return takesBody(schema, inject());
}
