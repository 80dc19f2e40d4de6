import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { MatrixError } from '@rookery/matrix-types';
import type { GuardedRequest } from './access.js';

/** The fields of a form of a page, and what each is. */
interface FormSchema<Name extends string> {
  readonly fields: Readonly<Record<Name, string>>;
}
/** What a form holds: `@FormBody(nameForm) form: InferForm<typeof nameForm>`. A field may be repeated; an absent one is empty. */
export type InferForm<S extends FormSchema<string>> =
  S extends FormSchema<infer Name> ? Readonly<Record<Name, readonly string[]>> : never;

/** A form of which these fields are read; of each, what it holds, in a sentence for docs/bodies.md. */
export const formOf = <Name extends string>(
  fields: Readonly<Record<Name, string>>,
): { readonly fields: Readonly<Record<Name, string>> } => ({ fields });

/** Largest number of fields in a form. */
const maxFormFields = 100;

const formMetadata = 'rookery:form';

/** The form that a controller's method takes; `undefined` where it takes none. */
export function formSchemaOf(controller: object, method: string): FormSchema<string> | undefined {
  return Reflect.getMetadata(formMetadata, controller, method) as FormSchema<string> | undefined;
}

/**
 * Injects the fields of a URL-encoded form; a repeated field keeps its order. An absent body has no fields.
 * @throws MatrixError 400 `M_INVALID_PARAM` for more than a hundred fields
 */
export function FormBody(schema: FormSchema<string>): ParameterDecorator {
  const names = Object.keys(schema.fields);
  const inject = createParamDecorator((_: unknown, context: ExecutionContext): InferForm<FormSchema<string>> => {
    const { inbound } = context.switchToHttp().getRequest<GuardedRequest>();
    const given = new URLSearchParams(inbound.rawBody?.toString('utf8') ?? '');
    if (given.size > maxFormFields) throw MatrixError.invalidParam('Too many form fields');
    return Object.fromEntries(names.map((name) => [name, given.getAll(name)]));
  })();
  return (controller, method, index) => {
    if (method !== undefined) Reflect.defineMetadata(formMetadata, schema, controller, method);
    inject(controller, method, index);
  };
}
