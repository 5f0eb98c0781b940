// @ts-check
// What a JSON Schema asks for, and the arguments from what stands in the fields. Pure functions, which `tests/page` holds to examples.

/** How a property is asked for. @param {any} schema @returns {'choice' | 'check' | 'whole' | 'number' | 'text' | 'long' | 'json'} */
export function kind(schema) {
  if (Array.isArray(schema?.enum) && schema.enum.every((/** @type {any} */ value) => typeof value === 'string')) return 'choice';
  const type = Array.isArray(schema?.type) ? schema.type.find((/** @type {string} */ of) => of !== 'null') : schema?.type;
  if (type === 'boolean') return 'check';
  if (type === 'integer') return 'whole';
  if (type === 'number') return 'number';
  if (type === 'string') return schema.maxLength > 200 || schema.format === 'textarea' ? 'long' : 'text';
  return 'json';
}

/** What stands in the fields at first. @param {any} schema @returns {Record<string, any>} */
export function begin(schema) {
  /** @type {Record<string, any>} */
  const fields = Object.create(null);
  for (const [name, of] of Object.entries(schema?.properties ?? {})) {
    const value = /** @type {any} */ (of)?.default;
    fields[name] = kind(of) === 'check' ? Boolean(value) : value === undefined ? '' : kind(of) === 'json' ? JSON.stringify(value) : String(value);
  }
  return fields;
}

/**
 * The arguments, or what is wrong with them. Empty fields that are not required are left out.
 *
 * @param {any} schema
 * @param {Record<string, any>} fields
 * @returns {{ value: Record<string, any>, wrong: Record<string, string> }}
 */
export function collect(schema, fields) {
  /** @type {[string, any][]} */
  const value = [];
  /** @type {Record<string, string>} */
  const wrong = Object.create(null);
  const required = new Set(schema?.required ?? []);
  for (const [name, of] of Object.entries(schema?.properties ?? {})) {
    const text = fields[name];
    const shape = kind(of);
    if (shape === 'check') {
      if (text || required.has(name)) value.push([name, Boolean(text)]);
    } else if (text === '' || text === undefined) {
      if (required.has(name) && shape !== 'text' && shape !== 'long') wrong[name] = 'it is required';
      else if (required.has(name)) value.push([name, '']);
    } else if (shape === 'whole' || shape === 'number') {
      const number = Number(text);
      if (!Number.isFinite(number) || (shape === 'whole' && !Number.isInteger(number))) wrong[name] = shape === 'whole' ? 'it is a whole number' : 'it is a number';
      else value.push([name, number]);
    } else if (shape === 'json') {
      try {
        value.push([name, JSON.parse(text)]);
      } catch {
        wrong[name] = 'it is JSON, such as ["a", 1] or {"a": true}';
      }
    } else value.push([name, text]);
  }
  // `__proto__` may be the name of a property.
  return { value: Object.fromEntries(value), wrong };
}
