import type { ModuleApi } from './api/module-api.js';
import { MatrixError } from '@rookery/matrix-types';

/** What stands in a field of a form. */
export type AdminFieldValue = string | number | boolean;

/** A field of a form. */
export interface AdminField {
  readonly name: string;
  readonly label: string;
  /** Default `text`. */
  readonly type?: 'text' | 'number' | 'checkbox' | 'textarea' | 'select';
  readonly value?: AdminFieldValue;
  /** Of a `select`. */
  readonly options?: readonly string[];
}

/** Something that an administrator can do. */
export interface AdminForm {
  /** Tells the forms of a page apart. */
  readonly name: string;
  readonly fields: readonly AdminField[];
  /** What its button says. */
  readonly button: string;
}

/** A part of a page. Everything is shown as text: nothing in it is HTML. */
export interface AdminSection {
  readonly title?: string;
  readonly text?: string;
  readonly table?: {
    readonly columns: readonly string[];
    readonly rows: readonly (readonly (string | number | boolean | null)[])[];
  };
  readonly form?: AdminForm;
}

/** Who looks at a page. */
export interface AdminPageContext {
  /** An administrator of the server. */
  readonly userId: string;
}

/** A page of a module in the server's pages for administrators. */
export interface AdminPage {
  /** 1 to 40 characters of `a-z 0-9 -`; unique within the module. */
  readonly id: string;
  readonly title: string;
  /** What the page shows now. */
  show(context: AdminPageContext): Promise<readonly AdminSection[]> | readonly AdminSection[];
  /**
   * A form of the page was sent. Check `values`: they are what a browser says.
   * @returns a sentence that is shown above the page
   * @throws MatrixError whose words are shown
   */
  submit?(
    form: string,
    values: Readonly<Record<string, AdminFieldValue>>,
    context: AdminPageContext,
  ): Promise<string | void> | string | void;
}

/** Below this, and the module's name, its pages for administrators lie. */
export const adminPagesPath = '/_synapse/client/admin_page/';

const maxFields = 100;

/**
 * Gives a module a page in the server's pages for administrators (`/_synapse/admin/pages`), which show and check everything: a module
 * says what is to be seen, and hears what was filled in. Only while `register` runs.
 *
 * ```ts
 * import { defineModule, registerAdminPage } from '@rookery/module-api';
 *
 * export default defineModule({
 *   name: 'greeter',
 *   register(api) {
 *     registerAdminPage(api, {
 *       id: 'greeting',
 *       title: 'Greeting',
 *       async show() {
 *         const value = String((await api.store.get('greeting')) ?? '');
 *         return [{ form: { name: 'change', fields: [{ name: 'greeting', label: 'New people hear', value }], button: 'Save' } }];
 *       },
 *       async submit(_form, { greeting }) {
 *         await api.store.put('greeting', greeting);
 *         return 'Saved.';
 *       },
 *     });
 *   },
 * });
 * ```
 */
export function registerAdminPage(
  api: Pick<ModuleApi, 'moduleName' | 'registerWebResource' | 'getUserByReq'>,
  page: AdminPage,
): void {
  if (!/^[a-z0-9-]{1,40}$/.test(page.id)) throw new Error(`${page.id} is no id of a page: take letters, digits and -`);
  api.registerWebResource(`${adminPagesPath}${api.moduleName}/${page.id}`, async (request) => {
    const { userId, isAdmin } = await api.getUserByReq(request);
    if (!isAdmin) throw MatrixError.forbidden('Only for administrators');
    const context = { userId };
    let message: string | undefined;
    if (request.method === 'POST') {
      if (!page.submit) throw MatrixError.unrecognizedKind('This page has no forms');
      const { form, values } = sent(await request.json().catch(() => undefined));
      message = (await page.submit(form, values, context)) ?? undefined;
    } else if (request.method !== 'GET') throw MatrixError.methodNotAllowed();
    const sections = await page.show(context);
    return Response.json(
      { title: page.title, sections, ...(message === undefined ? {} : { message }) },
      { headers: { 'cache-control': 'no-store' } },
    );
  });
}

function sent(body: unknown): { form: string; values: Record<string, AdminFieldValue> } {
  const { form, values } = (body ?? {}) as { readonly form?: unknown; readonly values?: unknown };
  const isForm = typeof form === 'string' && typeof values === 'object' && values !== null && !Array.isArray(values);
  const entries = isForm ? Object.entries(values) : [];
  const isValue = (value: unknown): value is AdminFieldValue => ['string', 'number', 'boolean'].includes(typeof value);
  if (!isForm || entries.length > maxFields || !entries.every(([, value]) => isValue(value)))
    throw MatrixError.badJson('A form has a name, and values that are texts, numbers or truths');
  return { form, values: Object.assign(Object.create(null) as object, values) as Record<string, AdminFieldValue> };
}
